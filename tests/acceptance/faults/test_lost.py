"""Who holds the row? A worker that is stopped, cut off, or has lost a connection begins no call that is not its own.

The witness is the count of requests that reached the sandbox, those too that it answered from memory.
"""

import os
import signal

import pytest

from tests import engine
from tests.acceptance.faults import definitions
from tests.acceptance.faults.harness import Requests, System, assert_nothing_twice, end_connection, outcomes
from tests.acceptance.outside import attempts, now
from tests.processes import until
from tests.servers import Proxy, database_url
from workflows.models import Effect, Workflow

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.faults]

# Below the second after which a worker speaks on its claim anyway: what it meets next is the fence.
CALL_TAKES = 0.6
LEASE = 2


def in_its_call(system: System, workflow: Workflow, step: str = "charge") -> str:
    """Wait until a worker is in the midst of the call; who it is."""
    until(
        lambda: Effect.objects.filter(workflow=workflow, step=step, state="intent").exists(), what=system.what_is_left
    )
    return engine.last_attempt(workflow).worker


def slow_charge(system: System) -> tuple[Requests, Requests]:
    system.sandbox.fault("payments", "charge", "slow", delay_s=CALL_TAKES, count=1)
    return Requests(system.sandbox, "payments", "charge"), Requests(system.sandbox, "messages", "send_confirmation")


def assert_called_once(charges: Requests, confirmations: Requests) -> None:
    # The first request for the charge met the fault that made it slow.
    assert (charges.count(), confirmations.count()) == (0, 1)


def test_a_worker_stopped_past_its_lease_in_the_midst_of_a_call_begins_no_other(system: System) -> None:
    requests = slow_charge(system)
    workflow = system.enter("paid")
    stopped = system.work("PAID", WORKER_LEASE_SECONDS=str(LEASE))
    holder = int(in_its_call(system, workflow).rpartition(":")[2])
    os.kill(holder, signal.SIGSTOP)
    system.work("PAID", WORKER_LEASE_SECONDS=str(LEASE))
    until(lambda: now(workflow).status == "COMPLETE", what=system.what_is_left)
    os.kill(holder, signal.SIGCONT)
    until(lambda: attempts(workflow)[0] == "lost", what=lambda: attempts(workflow))
    assert stopped.children() == [holder], "the same process"
    assert Effect.objects.get(workflow=workflow, step="charge").settled_by == "lookup"
    assert_called_once(*requests)
    system.stop()
    assert_nothing_twice(system, definitions.PAID)


@pytest.mark.parametrize("role", ["claim", "journal"])
def test_a_connection_ended_in_the_midst_of_a_call(system: System, role: str) -> None:
    """Each alone. Another worker is free to take the row, and the call in hand comes to its end meanwhile."""
    requests = slow_charge(system)
    workflow = system.enter("paid")
    system.work("PAID", processes=2)
    assert end_connection(role, in_its_call(system, workflow))
    system.wait_until_at_rest()
    system.wait_until(lambda: attempts(workflow)[0] == "lost")  # until it is back, it has vanished for the other one
    assert "lost the database, nothing is decided" in system.output
    assert_called_once(*requests)
    system.stop()
    assert_nothing_twice(system, definitions.PAID)


def test_a_result_that_cannot_be_written_is_written_when_the_journal_is_back(system: System) -> None:
    """Nobody has to look it up, and nobody is asked."""
    requests = slow_charge(system)
    workflow = system.enter("asked")
    system.work("ASKED")
    assert end_connection("journal", in_its_call(system, workflow))
    system.wait_until_at_rest()
    assert attempts(workflow) == ["lost", "complete"]
    assert Effect.objects.get(workflow=workflow, step="charge").settled_by == "call"
    assert_called_once(*requests)
    system.stop()
    assert_nothing_twice(system, definitions.ASKED)


def test_a_worker_that_is_cut_off_for_longer_than_its_lease_begins_no_call_when_it_is_back(system: System) -> None:
    """Its connections stay open and say nothing, both ways; the sandbox it still reaches."""
    requests = slow_charge(system)
    workflow = system.enter("paid")
    with Proxy() as proxy:
        cut_off = system.work("PAID", DATABASE_URL=database_url(port=proxy.port), WORKER_LEASE_SECONDS=str(LEASE))
        in_its_call(system, workflow)
        proxy.fall_silent()
        system.work("PAID", WORKER_LEASE_SECONDS=str(LEASE))
        until(lambda: now(workflow).status == "COMPLETE", what=system.what_is_left)
        assert attempts(workflow)[0] == "vanished", "nobody knows yet"
        assert "lost the database" not in cut_off.output
        proxy.connect()
        until(lambda: attempts(workflow)[0] == "lost", what=lambda: cut_off.output)
        assert_called_once(*requests)
        next_one = system.enter("paid")
        system.wait_until_at_rest()
        assert attempts(next_one) == ["complete"]
        system.stop()
    assert_nothing_twice(system, definitions.PAID)


WITHOUT_ANSWER = 6


def test_a_commit_whose_answer_is_lost_decided_something(system: System) -> None:
    """Reread, never inferred: it is not decided a second time, and not told as lost."""
    system.sandbox.fault("payments", "charge", "status", status=503, count=2)  # so that retries are among them
    with Proxy() as proxy:
        proxy.drops_answers_of, proxy.drops_answers_about = "onramp claim", b"workflows_attempt"
        proxy.answers_to_drop = WITHOUT_ANSWER
        workflows = [system.enter("paid") for _ in range(WITHOUT_ANSWER)]
        worker = system.work("PAID", DATABASE_URL=database_url(port=proxy.port) + "?sslmode=disable")
        system.wait_until_at_rest()
        assert (proxy.answers_dropped, proxy.answers_to_drop) == (WITHOUT_ANSWER, 0)
        until(lambda: worker.output.count("nothing is decided") == WITHOUT_ANSWER, what=lambda: worker.output)
        system.stop()
    assert outcomes(system) == {"complete": len(workflows), "retry": 2}, "none was lost, none was run again"
    assert_nothing_twice(system, definitions.PAID)

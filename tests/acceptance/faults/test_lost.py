"""Who holds the row? A worker that is stopped, cut off, or has lost a connection starts no call that is not its own.

The witness is the count of requests that reached the sandbox, those too that it answered from memory.
"""

import os
import signal
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests import engine
from tests.acceptance.faults import definitions
from tests.acceptance.faults.harness import (
    Requests,
    System,
    assert_nothing_twice,
    end_connection,
    fired,
    outcomes,
)
from tests.acceptance.outside import attempts, now
from tests.processes import until
from tests.servers import Proxy, database_url
from workflows.models import Attempt, Effect, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

# Below the second after which a worker speaks on its claim anyway: what it meets next is the fence.
CALL_TAKES = 0.6
# Seconds for any other answer: below `settle`, and a service that is busy for a moment is none that is in doubt.
PATIENT = {"SERVICES_TIMEOUT": "2.8"}
TRIES = 10

TakeBack = Callable[[], object]


class Caught(NamedTuple):
    """A workflow, the worker that was in the midst of its charge, and what is requested from then on."""

    workflow: Workflow
    worker: str
    charges: Requests
    confirmations: Requests

    def assert_called_once(self) -> None:
        """And nothing by the attempt that was lost: until another worker starts it, the fence alone forbids it."""
        # The first request for the charge met the fault that made it slow.
        assert (self.charges.count(), self.confirmations.count()) == (0, 1)
        lost = Attempt.objects.get(workflow=self.workflow, number=1)
        assert Effect.objects.get(workflow=self.workflow, step="confirm").attempt != lost.pk


def catch_in_its_call(system: System, workflow_type: str, act: Callable[[str], TakeBack]) -> Caught:
    """Do something to the worker that is in the midst of a charge.

    If that was too late, for this process is busy, too, it is retracted, and done again with another workflow.
    """
    for _ in range(TRIES):
        system.sandbox.clear_faults()
        slow = system.sandbox.fault("payments", "charge", "slow", delay_s=CALL_TAKES, count=1)["id"]
        charges = Requests(system.sandbox, "payments", "charge")
        confirmations = Requests(system.sandbox, "messages", "send_confirmation")
        workflow = system.enter(workflow_type)
        system.wait_until(lambda slow=slow: fired(system.sandbox)[slow])
        worker = engine.last_attempt(workflow).worker
        retract = act(worker)
        if Effect.objects.filter(workflow=workflow, step="charge", state="intent").exists():
            return Caught(workflow, worker, charges, confirmations)
        retract()
        system.wait_until_at_rest()
    raise AssertionError("always too late")


def stop(worker: str) -> TakeBack:
    process = int(worker.rpartition(":")[2])
    os.kill(process, signal.SIGSTOP)
    return lambda: os.kill(process, signal.SIGCONT)


def ending(role: str) -> Callable[[str], TakeBack]:
    def end(worker: str) -> TakeBack:
        assert end_connection(role, worker)
        return lambda: None

    return end


@pytest.mark.parametrize("taken", [True, False], ids=["its row was taken", "nobody has taken its row"])
def test_a_worker_stopped_past_its_lease_in_the_midst_of_a_call_starts_no_other(system: System, taken: bool) -> None:
    """If nobody has taken its row, no other worker's ledger stands in its way."""
    stopped = system.work("PAID", WORKER_LEASE_SECONDS=str(definitions.LEASE), **PATIENT)
    caught = catch_in_its_call(system, "paid", stop)
    workflow, holder = caught.workflow, int(caught.worker.rpartition(":")[2])
    if taken:
        system.work("PAID", WORKER_LEASE_SECONDS=str(definitions.LEASE), **PATIENT)
        until(lambda: now(workflow).status == "COMPLETE", what=system.what_is_left)
    else:
        system.wait_until(lambda: not engine.is_locked(workflow))
    os.kill(holder, signal.SIGCONT)
    system.wait_until_at_rest()
    system.wait_until(lambda: attempts(workflow)[0] == "lost")
    assert stopped.children() == [holder], "the same process"
    assert not taken or Effect.objects.get(workflow=workflow, step="charge").settled_by == "lookup"
    caught.assert_called_once()
    system.stop()
    assert_nothing_twice(system, definitions.PAID)


def test_connections_that_pass_nothing_on_in_the_midst_of_a_call(system: System) -> None:
    """They stay open, and new ones work. The call's result is kept until then, and the row is free for this worker."""
    with Proxy() as proxy:

        def freeze(worker: str) -> TakeBack:
            proxy.freeze()
            return lambda: None

        worker = system.work("PAID", DATABASE_URL=database_url(port=proxy.port), **PATIENT)
        caught = catch_in_its_call(system, "paid", freeze)
        until(lambda: now(caught.workflow).status == "COMPLETE", seconds=15, what=lambda: worker.output)
        assert attempts(caught.workflow) == ["lost", "complete"]
        caught.assert_called_once()
        system.stop()
    assert_nothing_twice(system, definitions.PAID)


@pytest.mark.parametrize("role", ["claim", "attempt_log"])
def test_a_connection_ended_in_the_midst_of_a_call(system: System, role: str) -> None:
    """Each alone. Another worker is free to take the row, and the call in hand comes to its end meanwhile."""
    system.work("PAID", processes=2, **PATIENT)
    caught = catch_in_its_call(system, "paid", ending(role))
    system.wait_until_at_rest()
    # Until it is back, it has vanished for the other one.
    system.wait_until(lambda: attempts(caught.workflow)[0] == "lost")
    assert "lost the database, nothing is decided" in system.output
    caught.assert_called_once()
    system.stop()
    assert_nothing_twice(system, definitions.PAID)


def test_a_result_that_cannot_be_written_is_written_when_the_attempt_log_is_back(system: System) -> None:
    """Nobody has to look it up, and nobody is asked."""
    system.work("ASKED", **PATIENT)
    caught = catch_in_its_call(system, "asked", ending("attempt_log"))
    system.wait_until_at_rest()
    assert attempts(caught.workflow) == ["lost", "complete"]
    assert Effect.objects.get(workflow=caught.workflow, step="charge").settled_by == "call"
    caught.assert_called_once()
    system.stop()
    assert_nothing_twice(system, definitions.ASKED)


def test_a_worker_that_is_cut_off_for_longer_than_its_lease_starts_no_call_when_it_is_back(system: System) -> None:
    """Its connections stay open and say nothing, both ways; the sandbox it still reaches."""
    with Proxy() as proxy:

        def cut_off_from_it(worker: str) -> TakeBack:
            proxy.fall_silent()
            return proxy.connect

        its_lease = {"WORKER_LEASE_SECONDS": str(definitions.LEASE), **PATIENT}
        cut_off = system.work("PAID", DATABASE_URL=database_url(port=proxy.port), **its_lease)
        caught = catch_in_its_call(system, "paid", cut_off_from_it)
        workflow = caught.workflow
        system.work("PAID", **its_lease)
        until(lambda: now(workflow).status == "COMPLETE", what=system.what_is_left)
        assert attempts(workflow)[0] == "vanished", "nobody knows yet"
        assert "lost the database" not in cut_off.output
        proxy.connect()
        until(lambda: attempts(workflow)[0] == "lost", what=lambda: cut_off.output)
        caught.assert_called_once()
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
        worker = system.work("PAID", DATABASE_URL=database_url(port=proxy.port) + "?sslmode=disable", **PATIENT)
        system.wait_until_at_rest()
        assert (proxy.answers_dropped, proxy.answers_to_drop) == (WITHOUT_ANSWER, 0)
        until(lambda: worker.output.count("nothing is decided") == WITHOUT_ANSWER, what=lambda: worker.output)
        system.stop()
    assert outcomes(system) == {"complete": len(workflows), "retry": 2}, "none was lost, none was run again"
    assert_nothing_twice(system, definitions.PAID)

"""A worker that dies, hangs, or loses its database in the middle of a step. The lock is the lease: nothing waits."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from django.db import connection, connections

from tests import engine
from tests.acceptance.conftest import Start
from tests.acceptance.outside import attempts, begun, done, now, open_gate, submit, who_runs
from tests.postgres import Restart
from tests.processes import is_alive, until
from workflows.models import Attempt, Event

pytestmark = pytest.mark.django_db(transaction=True)

# Far below anything that could be called a timeout: the keepalives alone take 25 s. On a quiet machine it takes one.
AT_ONCE = 15.0


def test_a_killed_workers_row_is_held_again_at_once(runworker: Start, effects: Path) -> None:
    workers = [runworker("HELD") for _ in range(2)]
    waits = []
    for _ in range(2):
        workflow = submit("held", effects)
        until(begun(workflow, effects), what=lambda: workers[0].output + workers[1].output)
        killed_at = time.monotonic()
        os.kill(who_runs(workflow), signal.SIGKILL)
        until(begun(workflow, effects, 2), seconds=AT_ONCE, what=lambda: workers[0].output + workers[1].output)
        waits.append(time.monotonic() - killed_at)
        assert engine.is_locked(workflow)
        open_gate(effects)
        until(lambda: now(workflow).status == "COMPLETE")  # noqa: B023 (it is asked at once)
        effects.with_name("gate").unlink()
        # The next worker may have been quicker than the supervisor's word of it.
        until(lambda: attempts(workflow) == ["killed", "complete"], what=lambda: attempts(workflow))  # noqa: B023
        first, event = Attempt.objects.get(workflow=workflow, number=1), Event.objects.filter(workflow=workflow).first()
        assert event
        assert engine.kinds(workflow) == ["killed", "completed"]
        assert (first.died_in, first.died_how) == ("hold", "SIGKILL")
        assert (event.step, event.detail) == ("hold", {"how": "SIGKILL"})
        assert done(effects, "end")[-1] == workflow.pk
    print("held again after", ", ".join(f"{wait:.2f} s" for wait in waits))  # noqa: T201 (the figure, for -s)


def test_a_worker_whose_supervisor_dies_with_it_has_vanished(runworker: Start, effects: Path) -> None:
    """As a host does that loses its power: nobody is left who knows."""
    workflow = submit("held", effects)
    gone = runworker("HELD")
    until(begun(workflow, effects), what=lambda: gone.output)
    gone.kill()
    worker = runworker("HELD")
    until(begun(workflow, effects, 2), what=lambda: worker.output)
    open_gate(effects)
    until(lambda: now(workflow).status == "COMPLETE")
    assert attempts(workflow) == ["vanished", "complete"]
    assert engine.kinds(workflow) == ["vanished", "completed"]


@pytest.mark.alone
def test_a_death_while_the_database_is_away_is_told_later(
    runworker: Start, effects: Path, restart_postgres: Restart
) -> None:
    workflow = submit("held", effects)
    worker = runworker("HELD")
    until(begun(workflow, effects), what=lambda: worker.output)
    holder = who_runs(workflow)
    with somebody_holding(engine.last_attempt(workflow)):  # as good as away: it cannot be written
        os.kill(holder, signal.SIGKILL)
        until(lambda: "will try again" in worker.output, what=lambda: worker.output)
        assert holder not in worker.children(), "reaped all the same"
        connections.close_all()
        restart_postgres()
    until(lambda: attempts(workflow)[0] == "killed", what=lambda: worker.output)


def test_a_worker_killed_while_the_database_works_for_it_holds_the_row_no_longer(
    runworker: Start, effects: Path
) -> None:
    """The server looks once a second whether anybody still waits for the statement, which takes a minute."""
    workflow = submit("querying", effects, {"seconds": 60})
    worker = runworker("QUERYING")
    until(begun(workflow, effects), what=lambda: worker.output)
    until(the_database_works_for_it, what=lambda: worker.output)
    os.kill(who_runs(workflow), signal.SIGKILL)
    until(begun(workflow, effects, 2), seconds=AT_ONCE, what=lambda: worker.output)


def the_database_works_for_it() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()")
        return bool(cursor.fetchall())


def test_a_stopped_worker_keeps_its_row_for_the_time_of_its_lease(runworker: Start, effects: Path) -> None:
    """It lives: its connection does, and nobody runs the workflow a second time beside it."""
    workflow = submit("held", effects)
    stopped = runworker("HELD")
    until(begun(workflow, effects), what=lambda: stopped.output)
    holder = who_runs(workflow)
    os.kill(holder, signal.SIGSTOP)
    other = submit("counted", effects)
    assert runworker("HELD", "COUNTED", arguments=("--drain",)).wait() == 0
    assert now(other).status == "COMPLETE"
    assert engine.is_locked(workflow)
    assert attempts(workflow) == [""]
    open_gate(effects)
    os.kill(holder, signal.SIGCONT)
    until(lambda: now(workflow).status == "COMPLETE", what=lambda: stopped.output)
    assert attempts(workflow) == ["complete"]


@pytest.mark.parametrize(
    ("definition", "then"),
    [("forking", "return"), ("forking", "raise"), ("forking", "close"), ("forking_hook", "return")],
)
def test_what_a_step_forks_is_no_second_worker(runworker: Start, effects: Path, definition: str, then: str) -> None:
    """It ends where the step's code does, decides nothing, and neither sends nor closes anything of its parent's."""
    workflows = [submit(definition, effects, {"then": then}) for _ in range(3)]
    worker = runworker(definition.upper(), arguments=("--drain",))
    assert worker.wait() == 0
    assert [attempts(each) for each in workflows] == [["complete"]] * 3, worker.output
    lines = [line.split() for line in effects.read_text().splitlines()]
    pids = {what: [int(pid) for _, did, pid in lines if did == what] for what in ("forked", "end", "hook")}
    assert (len(set(pids["end"])), len(set(pids["forked"]))) == (1, 3), "one worker, and a child of each workflow"
    assert not any(map(is_alive, pids["forked"]))
    if definition == "forking":
        assert {now(each).context["noted"] for each in workflows} == {True}
    else:
        assert pids["hook"] == pids["end"], "each hook ran once"
    assert worker.output.count("has forked") == 3, worker.output


@contextmanager
def somebody_holding(attempt: Attempt) -> Iterator[None]:
    """Somebody else's transaction that has locked the attempt's row, until the end, or its own."""
    with suppress(psycopg.OperationalError), engine.another_connection() as other:
        other.execute("BEGIN")
        other.execute("SELECT FROM workflows_attempt WHERE id = %s FOR UPDATE", [attempt.pk])
        yield

"""How a worker's end is recorded in the database: in which words, and what happens while the database is away."""

import signal
import time
from typing import Any

import pytest
from django.db import OperationalError, connection, connections

from tests import engine
from tests.engine import kinds, last_attempt, submit
from workflows.engine import deaths, process_status
from workflows.engine.deaths import DeathRegister
from workflows.engine.process_status import WorkerStatus
from workflows.errors import ClaimLost
from workflows.models import Attempt, WorkerProcess, Workflow

pytestmark = engine.ENGINE


@pytest.mark.parametrize(
    ("exit_code", "ended_by_us", "expected"),
    [
        (3, "", ("crashed", "exit code 3")),
        (-signal.SIGSEGV, "", ("crashed", "SIGSEGV")),
        (-signal.SIGABRT, "grace", ("crashed", "SIGABRT")),
        (-40, "", ("crashed", "signal 40")),
        (-signal.SIGKILL, "", ("killed", "SIGKILL")),
        (-signal.SIGKILL, "grace", ("interrupted", "grace")),
    ],
)
def test_a_crash_is_distinguished_from_a_kill(exit_code: int, ended_by_us: str, expected: tuple[str, str]) -> None:
    death = deaths.death("host:1", WorkerStatus(attempt_id=1), exit_code, ended_by_us=ended_by_us)
    assert (death.outcome, death.how) == expected
    assert deaths.death("host:1", WorkerStatus(attempt_id=1, lost=True), 0).outcome == "lost", (
        "its worker had lost its database"
    )


def test_a_worker_that_has_lost_its_database_shows_that_to_its_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is stopped while the database is away exits with its attempt open: that is not a crash."""
    (slot,) = process_status.allocate(1)
    this = engine.worker(slot=slot)
    seen = []

    def lose_it(*, workflow: Workflow, context: Any) -> None:
        seen.append(slot.read())
        this.stopping.set()
        engine.terminate("default")
        raise ValueError

    def fail(*_: Any) -> None:
        raise ClaimLost

    engine.define([lose_it])
    submit()
    monkeypatch.setattr("workflows.state.attempt_log.close_as_lost", fail)
    this.run()
    status, before = slot.read(), seen[0]
    assert status is not None
    assert before is not None
    assert (before.step, before.lost) == ("lose_it", False)
    assert before.deadline == before.since + 30
    assert (status.attempt_id, status.lost, status.deadline) == (Attempt.objects.get().pk, True, process_status.NEVER)


def attempt(workflow: Workflow, **fields: Any) -> Attempt:
    return Attempt.objects.create(**{"workflow": workflow, "number": 1, "worker": "test-host:1", **fields})


def register(*attempts: Attempt, how: str = "SIGSEGV", worker_id: int = 0) -> DeathRegister:
    made = DeathRegister("test-host:0")
    for each in attempts:
        status = WorkerStatus(worker_id=worker_id, attempt_id=each.pk, step="charge")
        made.add(deaths.Death("test-host:1", status, Attempt.Outcome.CRASHED, how))
    return made


def test_it_corrects_what_the_next_worker_found() -> None:
    engine.define([lambda *, workflow, context: None])
    workflow = submit()
    first = attempt(workflow)
    engine.work(workflow)
    assert kinds(workflow) == ["vanished", "completed"]
    closed_at = Attempt.objects.get(pk=first.pk).closed_at
    register(first).flush()
    assert kinds(workflow) == ["crashed", "completed"], "one line for one death"
    first.refresh_from_db()
    assert (first.outcome, first.closed_at) == ("crashed", closed_at)


def test_another_worker_that_got_the_ids_after_a_failover_has_not_died() -> None:
    row = attempt(submit())
    Attempt.objects.all().delete()
    other = attempt(submit(), id=row.pk, worker="test-host:2")
    process = WorkerProcess.objects.create(name="test-host:2", host="test-host", pid=2, release="", queue="")
    register(row, worker_id=process.pk).flush()
    assert (last_attempt(other.workflow).outcome, kinds(other.workflow)) == ("", [])
    process.refresh_from_db()
    assert process.stopped_at is None


def test_what_is_known_already_stands() -> None:
    for outcome in ("complete", "lost", "interrupted"):
        workflow = submit()
        register(attempt(workflow, outcome=outcome)).flush()
        assert (last_attempt(workflow).outcome, kinds(workflow)) == (outcome, [])


def test_a_death_that_is_recorded_twice_is_one_line_of_the_history() -> None:
    """The supervisor sends it again when the answer to the first time was lost."""
    workflow = submit()
    row = attempt(workflow)
    register(row, row).flush()
    assert kinds(workflow) == ["crashed"]


def test_a_death_that_the_supervisor_would_cause_is_written_now_or_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the database does not answer the supervisor, it may be all that the child waits for."""
    workflow = submit()
    status = WorkerStatus(attempt_id=attempt(workflow).pk, step="charge")
    overdue = deaths.Death("test-host:1", status, Attempt.Outcome.CRASHED, "late")
    this = register()

    def refuse() -> None:
        raise OperationalError

    with monkeypatch.context() as away:
        away.setattr(this, "_connect", refuse)
        assert not this.write(overdue)
        assert len(this) == 0
    assert kinds(workflow) == []
    this._try_again_at = 0.0
    assert this.write(overdue)
    assert kinds(workflow) == ["crashed"]


def test_a_death_that_cannot_be_recorded_is_kept_and_recorded_later(monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = submit()
    this = register(attempt(workflow))
    tries = []

    def refuse() -> None:
        tries.append(True)
        raise OperationalError

    with monkeypatch.context() as away:
        away.setattr(this, "_connect", refuse)
        for _ in range(5):
            this.flush()
        assert len(tries) == 1, "not at every turn"
        this.flush(at_once=True)
        assert len(tries) == 2
    assert last_attempt(workflow).outcome == ""
    this.flush(at_once=True)
    assert (last_attempt(workflow).outcome, len(this)) == ("crashed", 0)


def test_it_keeps_no_connection_and_no_more_than_it_can_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deaths, "MOST_KEPT", 10)

    def supervisors() -> int:
        with connection.cursor() as cursor:
            ours = "application_name LIKE 'onramp supervisor%' AND datname = current_database()"
            cursor.execute(f"SELECT count(*) FROM pg_stat_activity WHERE {ours}")
            return int(cursor.fetchone()[0])

    row = attempt(submit())
    this = register(*[row] * (deaths.MOST_KEPT + 1))
    assert len(this) == deaths.MOST_KEPT
    this.flush()
    for _ in range(100):
        if not supervisors():
            break
        time.sleep(0.02)
    assert supervisors() == 0
    attempt_log = connections["attempt_log"]
    attempt_log.close()  # and the settings that others connect with are as they were
    with attempt_log.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)

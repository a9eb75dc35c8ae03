"""The table of workers: a row for each process, as fresh as a second, and gone a day after its worker."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests import engine
from tests.engine import define, do_maintenance, submit, worker
from workflows.engine import heartbeat
from workflows.engine.loop import Worker
from workflows.models import Attempt, WorkerProcess, Workflow

pytestmark = engine.ENGINE


def due(this: Worker) -> None:
    """Let a second have passed."""
    this._heartbeat.due_at = float("-inf")


def test_it_says_what_its_worker_is_at(settings: Any) -> None:
    settings.RELEASE = "r7"
    seen = []

    def look(*, workflow: Workflow, context: Any) -> None:
        seen.append(WorkerProcess.objects.values().get())

    define([look])
    workflow, this = submit(), worker(queue="default")
    this.process_next()
    (row,) = seen
    assert (row["name"], row["release"], row["queue"]) == ("test-host:1", "r7", "default")
    assert (row["workflow_id"], row["attempt"], row["step"]) == (workflow.pk, 1, "look")
    assert row["last_seen"] - row["started_at"] < timedelta(milliseconds=100)  # two readings of one clock
    assert timezone.now() - timedelta(seconds=10) < row["since"] <= row["last_seen"]

    due(this)
    this._beat()
    after = WorkerProcess.objects.get()
    assert (after.workflow_id, after.attempt, after.step, after.since) == (None, None, "", None)
    assert after.last_seen > row["last_seen"]


def test_it_beats_once_a_second_at_most() -> None:
    define([lambda *, workflow, context: None] * 1)
    this = worker()
    for _ in range(20):
        submit()
    with CaptureQueriesContext(connection) as claim, engine.another_connection() as other:
        from django.db import connections

        with CaptureQueriesContext(connections["attempt_log"]) as queries:
            while this.process_next():
                this._beat()
        assert other.execute("SELECT count(*) FROM workflows_attempt").fetchone() == (20,)
    beats = [q for q in [*queries, *claim] if "workflows_workerprocess" in q["sql"]]
    assert len(beats) <= 6, "a row made and beats of the seconds that it took"


def test_a_worker_learns_with_each_beat_how_many_look_at_its_queue() -> None:
    this, *others = (worker() for _ in range(5))
    elsewhere = worker(queue="elsewhere")
    for each in (*others, elsewhere, this):
        each._beat()
    assert (this._due.live_workers, elsewhere._due.live_workers) == (5, 1)
    stopped, silent, *_ = others
    stopped.sign_off()
    WorkerProcess.objects.filter(pk=silent.status.now.worker_id).update(last_seen=timezone.now() - timedelta(seconds=6))
    due(this)
    this._beat()
    assert this._due.live_workers == 3


def test_workers_that_take_compensation_only_share_their_looks_among_themselves() -> None:
    this, other = worker(), worker()
    undoing = worker(only="compensation")
    for each in (other, undoing, this):
        each._beat()
    assert (this._due.live_workers, undoing._due.live_workers) == (2, 1)
    assert sorted(WorkerProcess.objects.values_list("only", flat=True)) == ["", "", "compensation"]


def test_a_row_that_aged_out_or_was_given_up_too_early_is_made_anew() -> None:
    this = worker()
    this._beat()
    WorkerProcess.objects.update(stopped_at=timezone.now(), ended_how="overdue")
    due(this)
    this._beat()
    row = WorkerProcess.objects.get()
    assert (row.stopped_at, row.ended_how) == (None, "")
    row.delete()
    due(this)
    this._beat()
    assert WorkerProcess.objects.get().pk == this.status.now.worker_id


def test_a_worker_whose_row_s_id_is_another_s_after_a_failover_gets_a_new_row() -> None:
    this = worker()
    this._beat()
    WorkerProcess.objects.update(name="test-host:2")
    this._heartbeat.stop()
    assert WorkerProcess.objects.get().stopped_at is None
    WorkerProcess.objects.update(stopped_at=timezone.now())
    due(this)
    this._beat()
    assert WorkerProcess.objects.get(name="test-host:2").stopped_at is not None
    assert WorkerProcess.objects.get(stopped_at=None).pk == this.status.now.worker_id


def test_the_heartbeat_says_nothing_of_the_attempt() -> None:
    """That row is the claim's to close: whoever else writes it would wait for it."""
    define([lambda *, workflow, context: None])
    workflow = submit()
    attempt = Attempt.objects.create(workflow=workflow, number=1, worker="test-host:1")
    with engine.another_connection() as other:
        other.execute("BEGIN")
        other.execute("SELECT FROM workflows_attempt WHERE id = %s FOR UPDATE", [attempt.pk])
        this = worker()
        this.status.update(attempt_id=attempt.pk, workflow_id=workflow.pk, step="charge")
        this._beat()
    assert WorkerProcess.objects.get().workflow_id == workflow.pk


@pytest.mark.parametrize("column", ["last_seen", "stopped_at"])
def test_maintenance_forgets_workers_after_a_day(column: str) -> None:
    old, new = (worker(queue=name) for name in ("old", "new"))
    for each, age in ((old, timedelta(hours=25)), (new, timedelta(hours=23))):
        each._beat()
        WorkerProcess.objects.filter(queue=each.queue).update(**{column: timezone.now() - age})
    do_maintenance()
    assert WorkerProcess.objects.get().queue == "new"
    assert heartbeat.delete_stale().changed == 0

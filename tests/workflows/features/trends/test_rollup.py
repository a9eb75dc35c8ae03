"""The rollup counts what has committed, each once, whatever the order of the commits; and how long it took."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from tests import engine
from tests.engine import another_connection, define, due_again, elsewhere, make_due, submit, work
from tests.postgres import without_triggers
from tests.rollup import added_up, look, plain, told
from tests.workflows.cancelling import BY_PHONE, ask, nothing
from tests.workflows.operations import correcting
from tests.workflows.undoing import World, fail, flaky, to_rest
from workflows import operations
from workflows.definition import Step
from workflows.errors import ServiceUnavailable
from workflows.features.trends import rollup
from workflows.features.trends.rates import quantile, series, totals
from workflows.models import Attempt, Workflow
from workflows.models.rollup import Grain, Metric, Rollup, RollupProgress
from workflows.postgres.statements import execute, fetch_row
from workflows.state import attempt_log

pytestmark = engine.ENGINE

ENTER = "INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload) VALUES (%s, 'test', '{}')"


@contextmanager
def entering() -> Iterator[psycopg.Connection[Any]]:
    """A submission that is stored, and that somebody else has not committed yet."""
    with another_connection() as other:
        other.autocommit = False
        other.execute(ENTER, [uuid.uuid4()])
        yield other
        other.rollback()


def started() -> int:
    look()
    return sum(point.count for point in totals([Metric.STARTED]))


def ended(metric: Metric, outcome: str = "") -> int:
    return sum(point.count for point in totals([metric], outcome=outcome))


def parked(**_: Any) -> None:
    raise ServiceUnavailable("It is not called.", code="service_unavailable")


def everything(world: World, ada: User) -> None:
    """Workflows that complete, fail, are undone, are retried, wait and are cancelled; steps of most outcomes."""
    best_effort = Step(fail, name="tell", best_effort=True)
    define([world.step("charge"), Step(nothing, name="a, b"), ask, best_effort, flaky])
    waiting, cancelled = work(submit()), work(submit())
    operations.cancel(cancelled.pk, user=ada, reason=BY_PHONE)
    to_rest(cancelled)
    operations.cancel(submit().pk, user=ada, reason=BY_PHONE)
    operations.cancel(waiting.pk, user=ada, reason=BY_PHONE)
    operations.retry(to_rest(waiting).pk, user=ada)
    define([world.step("charge"), flaky])
    to_rest(waiting)
    define([nothing, parked])
    work(submit())


# --- Each once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 1_000])
def test_its_totals_are_what_a_count_of_the_rows_finds(
    world: World, ada: User, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(rollup, "ROWS", rows)
    everything(world, ada)
    assert added_up() == plain()
    look()
    assert told() == plain()
    assert [point.step for point in totals([Metric.STEP], by=["step"], outcome="parked")] == ["parked"]


def test_a_transaction_that_commits_after_later_ones_is_counted_once(engine: None) -> None:
    with entering() as first:
        submit()
        with entering() as second:
            submit()
            assert started() == 2
            second.commit()
            assert started() == 3
        first.commit()
    assert [started(), started()] == [4, 4]


def test_what_is_rolled_back_is_not_counted(engine: None) -> None:
    with entering():
        assert started() == 0
    submit()
    assert started() == 1


def test_a_slice_ends_with_a_transaction_and_leaves_the_rest(engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "ROWS", 2)
    for _ in range(5):
        submit()
    with another_connection() as other:
        other.execute(f"{ENTER}, (gen_random_uuid(), 'test', '{{}}')", [uuid.uuid4()])
    assert [started() for _ in range(5)] == [2, 4, 7, 7, 7]


def test_slices_follow_the_numbers_of_the_transactions(engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "ROWS", 1)
    for xid in ("98", "99", "100"):
        execute("UPDATE workflows_workflow SET entered_xid = %s::xid8 WHERE id = %s", [xid, submit().pk])
    assert [started(), started(), started()] == [1, 2, 3]


def test_a_transaction_that_is_open_while_a_backlog_is_counted_is_not_lost(
    engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup, "ROWS", 2)
    submit()
    with entering() as late:
        for _ in range(4):
            submit()
        assert [started() for _ in range(2)] == [2, 4]
        late.commit()  # between two slices: the last one takes what is open from the server again
    assert [started(), started()] == [6, 6]


def test_what_was_there_before_the_upgrade_is_not_counted(engine: None) -> None:
    submit()
    Workflow.objects.update(entered_xid=None)
    submit()
    assert started() == 1


def test_what_it_adds_and_what_it_has_seen_commit_together(engine: None) -> None:
    submit()

    def dies() -> None:
        with transaction.atomic():
            assert started() == 1
            transaction.set_rollback(True)

    elsewhere(dies)
    assert started() == 1


# --- An attempt that is corrected ---------------------------------------------------------------------


def vanish() -> Attempt:
    """An attempt whose worker was lost; the next one has found it."""
    define([nothing])
    workflow = submit()
    attempt = Attempt.objects.create(workflow=workflow, number=1, worker="lost-host:1")
    work(workflow)
    return attempt


def correct(attempt: Attempt) -> None:
    closing = attempt_log.closing_statements(
        attempt.pk,
        "lost-host:1",
        Attempt.Outcome.KILLED,
        step="nothing",
        steps=[{"step": "nothing", "outcome": "ran", "ms": 1.0}],
    )
    for sql, parameters in closing:
        attempt_log.execute(sql, parameters)


@pytest.mark.parametrize("counted_before", [True, False])
def test_an_attempt_that_was_vanished_until_more_was_known_is_counted_once(engine: None, counted_before: bool) -> None:
    attempt = vanish()
    if counted_before:
        look()
        assert ended(Metric.ATTEMPT, "vanished") == 1
    correct(attempt)
    assert added_up() == plain()
    assert (ended(Metric.ATTEMPT, "vanished"), ended(Metric.ATTEMPT, "killed")) == (0, 1)
    assert ended(Metric.CORRECTED) == counted_before


def test_one_that_is_corrected_after_the_end_of_a_slice_is_counted_as_it_was_then(
    engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    correct(vanish())
    monkeypatch.setattr(rollup, "ROWS", 1)
    counted = []
    while look():
        counted.append((ended(Metric.ATTEMPT, "vanished"), ended(Metric.ATTEMPT, "killed"), ended(Metric.STEP, "ran")))
    assert (1, 0, 0) in counted
    assert told() == plain()


def test_a_run_of_what_an_earlier_attempt_has_run_is_a_rerun(engine: None) -> None:
    define([nothing])
    workflow, another = submit(), submit()
    for of, number, in_short in (
        (workflow, 1, "charge 1.0, ask skipped 0.0, notify, reship 1.0, a(b 1.0"),
        (workflow, 2, "charge 1.0, ask 1.0, notify 1.0, ship 1.0, tell recorded 0.1, a(b 1.0"),
        (workflow, 3, "tell 1.0, charge recorded 0.1"),
        (another, 1, "charge 1.0"),
    ):
        Attempt.objects.create(
            workflow=of, number=number, worker="w:1", closed_at=timezone.now(), steps_in_short=in_short, outcome="retry"
        )
    execute("UPDATE workflows_attempt SET closed_xid = pg_current_xact_id()")
    look()
    assert [(point.step, point.count) for point in totals([Metric.RERUN])] == [("a(b", 1), ("charge", 1)]


# --- How long it took ---------------------------------------------------------------------------------


def shift(workflow: Workflow, **by: float) -> None:
    """Let all that has happened have happened so much earlier."""
    with connection.cursor() as cursor, without_triggers():
        for table, columns in {
            "workflow": ["created_at", "invisible_until"],
            "attempt": ["opened_at", "closed_at", "due_since"],
            "event": ["at"],
        }.items():
            earlier = ", ".join(f"{column} = {column} - %(by)s" for column in columns)
            which = "id" if table == "workflow" else "workflow_id"
            cursor.execute(
                f"UPDATE workflows_{table} SET {earlier} WHERE {which} = %(pk)s",
                {"by": timedelta(**by), "pk": workflow.pk},
            )


def minutes() -> dict[str, float]:
    """How many minutes the last finish took, by metric."""
    Rollup.objects.all().delete()
    look()
    return {
        point.metric: int(point.seconds // 60) for point in totals([Metric.FINISHED, Metric.ACTIVE, Metric.WAITING])
    }


def test_the_time_until_it_was_due_again_is_waiting_and_the_queue_is_not(engine: None, ada: User) -> None:
    define([ask])
    workflow = work(submit())
    shift(workflow, hours=2)  # it waits
    due_again(workflow)
    shift(workflow, minutes=5)  # no worker comes
    define([nothing])
    work(workflow)
    assert minutes() == {"finished": 125, "waiting": 120, "active": 5}


def test_a_back_off_is_no_waiting(engine: None) -> None:
    define([flaky])
    workflow = work(submit())
    shift(workflow, minutes=1)
    due_again(workflow)
    work(workflow)
    assert minutes() == {"finished": 1, "waiting": 0, "active": 1}


def test_the_time_of_a_retry_starts_with_it_and_each_finish_counts(engine: None, ada: User) -> None:
    define([fail])
    workflow = work(submit())
    assert minutes()["finished"] == 0
    shift(workflow, days=1)
    operations.retry(workflow.pk, user=ada)
    shift(workflow, minutes=30)
    work(workflow)
    assert minutes() == {"finished": 30, "waiting": 0, "active": 30}
    assert plain()["finished", "test", "fail", "failed", "refused"] == 2


def test_so_does_that_of_a_correction(engine: None) -> None:
    define([correcting.check], correctable=correcting.EMAIL)
    workflow = work(submit({"patient": {"email": correcting.TYPO}}))
    shift(workflow, days=1)
    correcting.correct(workflow)
    shift(workflow, minutes=30)
    work(workflow)
    assert minutes()["active"] == 30


def test_what_is_cancelled_while_it_waits_has_waited_until_then(engine: None, ada: User) -> None:
    define([ask])
    workflow = work(submit())
    shift(workflow, minutes=10)
    operations.cancel(workflow.pk, user=ada, reason=BY_PHONE)
    assert minutes() == {"finished": 10, "waiting": 10, "active": 0}


def test_a_clock_that_was_set_back_costs_a_duration_and_no_count(engine: None) -> None:
    define([nothing])
    workflow = submit()
    shift(workflow, days=-400)
    make_due(workflow)
    Workflow.objects.update(invisible_until=timezone.now())
    work(workflow)
    assert added_up() == plain()
    assert ended(Metric.FINISHED, "complete") == 1


# --- Read, and forgotten ------------------------------------------------------------------------------


def test_a_series_has_a_point_for_each_time_and_each_label_that_is_asked_for(engine: None) -> None:
    define([nothing])
    now = timezone.now()
    for ago in (0, 0, 3):
        shift(submit(), hours=ago)
    look()
    day = (now - timedelta(days=1), now + timedelta(minutes=1))
    hours = series(Metric.STARTED, *day, Grain.HOUR, by=["workflow_type"])
    assert [(point.count, point.workflow_type) for point in hours] == [(1, "test"), (2, "test")]
    assert hours[0].at == (now - timedelta(hours=3)).replace(minute=0, second=0, microsecond=0)
    assert [point.count for point in series(Metric.STARTED, *day, Grain.DAY)][-1] >= 2
    assert series(Metric.STARTED, *day, Grain.HOUR, workflow_type="another") == []
    with pytest.raises(TypeError, match="no label of the rollup: colour"):
        series(Metric.STARTED, *day, Grain.HOUR, by=["colour"])


def test_a_bucket_holds_what_took_no_longer_than_its_bound(engine: None) -> None:
    for taken in (0.5, 1, 1.001, 600, 601):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {rollup._bucket(Metric.FINISHED, '%s')}", [taken])
            assert cursor.fetchone() == ({0.5: 0, 1: 0, 1.001: 1, 600: 8, 601: 9}[taken],)


@pytest.mark.parametrize(
    ("buckets", "found"),
    [([0] * 10, None), ([10] + [0] * 9, 0.95), ([0, 0, 20] + [0] * 7, 2.95), ([0] * 9 + [3], 600)],
)
def test_a_quantile_is_what_prometheus_would_estimate(buckets: list[int], found: float | None) -> None:
    assert quantile(Metric.ACTIVE, buckets, 0.95) == pytest.approx(found)


def test_minutes_hours_and_days_are_forgotten_in_time_and_totals_never(engine: None) -> None:
    for days in (1, 3, 36, 401):
        shift(submit(), days=days)
    look()
    assert rollup.forget().changed == 3 + 2 + 1
    assert rollup.forget().changed == 0
    assert {grain: Rollup.objects.filter(grain=grain).count() for grain in Grain} == {
        "minute": 1,
        "hour": 2,
        "day": 3,
        "total": 1,
    }


# --- Another server -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seen", ["1:1:", "9000000000:9000000000:"])
def test_in_a_database_of_another_server_it_starts_anew(engine: None, seen: str) -> None:
    """Its rows have transaction ids that this server has yet to give out, or has given to other transactions."""
    for _ in range(2):
        submit()
    look()
    execute("UPDATE workflows_workflow SET entered_xid = (pg_current_xact_id()::text::bigint + 3)::text::xid8")
    changed = {"server": "another"} if seen == "1:1:" else {}
    RollupProgress.objects.update(seen=seen, **changed)
    assert started() == 2
    for _ in range(9):
        submit()
    assert started() == 11


def test_a_standby_that_gives_out_ids_again_counts_each_row_once(engine: None) -> None:
    """Their transactions were open when the primary was lost, and it had got nothing of them."""
    submit()
    look()
    (end,) = fetch_row("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    given = range(end, end + 1000)
    RollupProgress.objects.update(seen=f"{end}:{end + 1000}:{','.join(map(str, given))}")
    submit()
    assert started() == 2
    submit()
    assert started() == 3

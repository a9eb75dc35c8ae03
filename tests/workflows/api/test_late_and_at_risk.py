"""What Prometheus is told of what is late, and of money at risk; and that it costs the same on a large table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from tests.engine import another_connection, define
from tests.workflows import rows
from tests.workflows.api.test_metrics import MINUTE, _in_debug, told
from tests.workflows.features.brake.causes import open_cause
from tests.workflows.features.outages.services import open_circuit
from workflows.definition import Step
from workflows.health import bounded, late, money_at_risk, recent_failures
from workflows.models import Chore, Effect, FollowUp, Signal, Wait, WorkerProcess, Workflow
from workflows.postgres.wire import Wire, wire_of
from workflows.wording import CodeWords, Money, Wording

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("engine", _in_debug.__name__)]

SECOND = timedelta(seconds=1)
CHARGES = Wording(
    money=Money("charge", "amount", "currency", reference="charge_id", refund="refund_id"),
    codes={"card_declined": CodeWords("No.", "No."), "rotated": CodeWords("No.", "No.", ours=True)},
)


def define_charging(**options: Any) -> None:
    steps = [Step(rows.reserve, once=True), Step(rows.charge, once=True, returns=("charge_id",))]
    define(steps, wording=CHARGES, **options)


def test_what_is_due_is_told_by_queue_and_what_has_started_is_late_after_a_minute(client: Client) -> None:
    now = timezone.now()
    rows.workflow(invisible_until=now - 2 * MINUTE)
    rows.workflow(invisible_until=now - 2 * MINUTE, begun=True)
    rows.workflow(invisible_until=now - MINUTE / 2, begun=True)
    rows.running(invisible_until=now - 2 * MINUTE, begun=True)
    rows.retrying(begun=True)
    rows.workflow(queue="nightly")
    samples = told(client)
    assert [samples["due_workflows", (queue,)] for queue in ("default", "nightly")] == [3, 1]
    assert [samples["late_timers", (queue,)] for queue in ("default", "nightly")] == [1, 0]


def test_a_workflow_over_its_time_that_sleeps_on_is_told_after_a_minute(client: Client) -> None:
    now = timezone.now()
    for minutes in (2, 0, -9):
        rows.waiting(task=False, expires_at=now - minutes * MINUTE)
    rows.workflow(expires_at=now - 2 * MINUTE)
    assert told(client)["late_expiries", ()] == 1


def test_what_no_worker_will_ever_take_is_told(client: Client) -> None:
    left = {"workflow_type": "gone", "waiting_for": "a release that knows the workflow type gone"}
    rows.workflow(**left), rows.workflow(**left), rows.compensating(**left), rows.complete(workflow_type="gone")
    for minutes in (31, 29, -60):
        due_at = timezone.now() - minutes * MINUTE
        FollowUp.objects.create(workflow=rows.complete(), step="thank", queue="nightly", due_at=due_at)
    samples = told(client)
    of = {labels: number for (name, labels), number in samples.items() if name == "unknown_type_workflows"}
    assert (of, samples["late_deferred_steps", ()]) == ({("false", "gone"): 2, ("true", "gone"): 1}, 1)


def signal(age: timedelta, **fields: Any) -> Signal:
    row = Signal.objects.create(source="shop", dedupe_key=str(age), **{"name": "paid", **fields})
    Signal.objects.filter(pk=row.pk).update(created_at=timezone.now() - age)
    return row


def test_the_lag_of_signals_is_that_of_the_oldest_that_a_workflow_waits_for(client: Client) -> None:
    waits = rows.waiting(task=False, wake_on=["paid"], linking_id="acc")
    finished = rows.complete(wake_on=["paid"], linking_id="gone")
    signal(9 * MINUTE, workflow=finished)
    signal(9 * MINUTE + SECOND, linking_id="gone")
    signal(8 * MINUTE, workflow=waits, name="lost")
    signal(8 * MINUTE + SECOND, linking_id="acc", name="lost")
    signal(7 * MINUTE, workflow=waits, closed_at=timezone.now())
    answered = signal(7 * MINUTE + SECOND, linking_id="acc")
    Wait.objects.create(workflow=waits, name="paid", kind="signal", deadline=timezone.now(), signal=answered)
    assert told(client)["signal_lag_seconds", ()] == 0
    signal(2 * MINUTE, workflow=waits)
    assert 120 <= told(client)["signal_lag_seconds", ()] < 150
    signal(3 * MINUTE, linking_id="acc")
    assert 180 <= told(client)["signal_lag_seconds", ()] < 210


def test_a_maintenance_task_is_silent_while_it_is_due_and_nobody_does_it(client: Client) -> None:
    now = timezone.now()
    for name, due_at in {"wake expired": now - MINUTE, "wake parents": now + MINUTE, "of another release": now}.items():
        Chore.objects.create(name=name, due_at=due_at)
    told_of = {labels[0]: value for (name, labels), value in told(client).items() if name == "chore_silent_seconds"}
    assert 60 <= told_of.pop("wake expired") < 90
    assert told_of == {"wake parents": 0}


def test_tasks_are_told_by_type_with_the_age_of_the_oldest(client: Client) -> None:
    for minutes, fields in enumerate([{}, {"team": "clinicians"}, {"task_type": "undo_in_doubt"}, {"state": "closed"}]):
        rows.open_task(rows.waiting(task=False), created_at=timezone.now() - minutes * MINUTE, **fields)
    ended = rows.waiting()
    Workflow.objects.filter(pk=ended.pk).update(status="COMPLETE")
    samples = told(client)
    assert [samples["tasks", (each,)] for each in ("parcel review", "undo_in_doubt")] == [2, 1]
    assert 60 <= samples["oldest_task_seconds", ("parcel review",)] < 90
    assert 120 <= samples["oldest_task_seconds", ("undo_in_doubt",)] < 150


def test_a_failure_is_unexplained_if_no_words_make_it_the_patients_own(client: Client) -> None:
    define_charging()
    for code in ("card_declined", "expired", "rotated", "", "broken_session"):
        rows.failed(workflow_type="test", last_error_code=code)
    rows.failed(workflow_type="test", last_error_code="rotated", completed_at=timezone.now() - 61 * MINUTE)
    assert told(client)["unexplained_failures_last_hour", ()] == 3
    theirs = Workflow.objects.filter(last_error_code__in=["card_declined", "expired"])
    Workflow.objects.exclude(pk__in=theirs).update(completed_at=timezone.now() - 61 * MINUTE)
    assert told(client)["unexplained_failures_last_hour", ()] == 0


def test_a_reversal_has_failed_until_its_call_is_undone_or_left(client: Client) -> None:
    for state in ("done", "unknown", "undone", "kept"):
        Effect.objects.filter(workflow=rows.compensating()).update(undo_failures=2, state=state)
    rows.compensating()
    Effect.objects.filter(workflow=rows.compensating()).update(undo_unavailable=9)
    over = rows.compensating()
    Effect.objects.filter(workflow=over).update(undo_failures=1)
    Workflow.objects.filter(pk=over.pk).update(status="FAILED", compensating=False)
    assert told(client)["failed_reversals", ()] == 2


CHARGE: dict[str, Any] = {"step": "charge", "result": {"charge_id": "ch_1"}, "state": "done", "undo": False}


def test_a_charge_that_stands_though_its_workflow_failed_is_told(client: Client) -> None:
    define_charging()
    now = timezone.now()
    for make, more in (
        (rows.failed, {}),
        (rows.failed, {"completed_at": now, "acknowledged_failure": now}),
        (rows.cancelled, {}),
        (rows.complete, {}),
        (rows.compensating, {}),
    ):
        row = make(workflow_type="test", **more)
        Effect.objects.filter(workflow=row).delete()
        Effect.objects.create(workflow=row, attempt=1, idempotency_key=row.key, **CHARGE)
    for state, number in (("done", 1), ("undone", 0)):
        Effect.objects.update(state=state)
        assert told(client)["standing_charges", ()] == number, state


def test_an_open_question_about_a_call_is_told_and_whether_the_call_may_be_a_charge(client: Client) -> None:
    define_charging()
    for about, state in (("charge", "open"), ("reserve", "open"), ("reserve", "open"), ("charge", "closed")):
        row = rows.waiting(task=False, workflow_type="test")
        rows.open_task(row, about=about, task_type="effect_in_doubt", state=state)
    ended = rows.open_task(rows.waiting(task=False, workflow_type="test"), task_type="effect_in_doubt")
    Workflow.objects.filter(pk=ended.workflow_id).update(status="COMPLETE")
    samples = told(client)
    assert [samples["unclear_calls", (charges,)] for charges in ("true", "false")] == [1, 2]


def test_a_charge_of_which_nobody_has_known_for_an_hour_is_told_unless_a_person_is_asked(client: Client) -> None:
    define_charging()
    long = timezone.now() - 61 * MINUTE

    def in_doubt(make: Any = rows.retrying, *, since: Any = long, step: str = "charge", **fields: Any) -> Workflow:
        row: Workflow = make(workflow_type="test", **fields)
        call = {"step": step, "state": "unknown", "attempt": 1, "idempotency_key": str(row.key)}
        Effect.objects.create(workflow=row, first_begun_at=since, **call)
        return row

    fails = in_doubt()
    parked = in_doubt(rows.workflow, parked_on="payments", parked_at=timezone.now())
    in_doubt(since=timezone.now() - 59 * MINUTE)
    in_doubt(step="reserve")
    in_doubt(rows.waiting)
    in_doubt(rows.failed)
    assert {*money_at_risk.long_unclear_charges()} == {fails.pk, parked.pk}
    assert told(client)["long_unclear_charges", ()] == 2


def test_a_failure_is_forgotten_after_a_day_unless_its_patient_was_told_or_somebody_saw_to_it(client: Client) -> None:
    define([rows.reserve], wording=Wording(codes={"taken": CodeWords("No.", "No.", asks_nobody=True)}))
    day_ago = timezone.now() - 25 * 60 * MINUTE
    for code, at, more in (
        ("odd", day_ago, {}),
        ("taken", day_ago, {}),
        ("odd", day_ago, {"acknowledged_failure": day_ago}),
        ("odd", day_ago + 2 * 60 * MINUTE, {}),
    ):
        rows.failed(workflow_type="test", last_error_code=code, completed_at=at, **more)
    assert told(client)["forgotten_failures", ()] == 1


# --- What it costs ----------------------------------------------------------------------------------


def fill(number: int) -> None:
    """So many of everything that there are ever more of, and of what a scrape counts."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""TRUNCATE workflows_workflow, workflows_attempt, workflows_effect, workflows_signal CASCADE;
            INSERT INTO workflows_workflow (
                   idempotency_key, workflow_type, payload, status, completed_at, acknowledged_failure, begun,
                   invisible_until, parked_on, compensating, expires_at)
            SELECT gen_random_uuid(), 'test', '{{"note": "{"x" * 500}"}}',
                   CASE WHEN kind > 6 THEN 'COMPLETE' WHEN kind < 3 THEN 'FAILED' ELSE 'PENDING' END,
                   CASE WHEN kind < 3 OR kind > 6 THEN now() - n * interval '1 s' END,
                   CASE WHEN kind < 2 THEN now() - n * interval '1 s' END, kind > 3,
                   now() + CASE WHEN kind > 4 THEN n ELSE -n END * interval '1 s',
                   CASE kind WHEN 5 THEN 'payments' ELSE '' END, kind = 6,
                   CASE WHEN kind = 5 THEN now() - interval '1 h' END
              FROM (SELECT n, n % 40 AS kind FROM generate_series(1, {number}) n) made;
            INSERT INTO workflows_attempt (workflow_id, number, worker, closed_at, outcome)
            SELECT id, 1, 'host', now(), 'lost' FROM workflows_workflow;
            INSERT INTO workflows_effect (workflow_id, step, state, idempotency_key, attempt, result, undo_failures)
            SELECT id, 'charge', 'done', '', 1, '{{"charge_id": "ch_1"}}', CASE WHEN compensating THEN 1 ELSE 0 END
              FROM workflows_workflow;
            INSERT INTO workflows_signal (source, dedupe_key, name, workflow_id, closed_at)
            SELECT 'shop', id, 'paid', id, CASE WHEN id % 2 = 0 THEN now() END FROM workflows_workflow;
            ANALYZE workflows_workflow, workflows_attempt, workflows_effect, workflows_signal"""
        )


def rows_read(act: Callable[[], object]) -> int:
    """How many entries of indexes and rows of the tables of workflows the act reads."""

    def so_far() -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                """SELECT sum(pg_stat_get_xact_tuples_returned(oid)) FROM pg_class
                    WHERE relname ~ '^(workflows_|workflow_|attempt_|effect_|signal_|manual_task_|follow_up_)'
                      AND relkind IN ('r', 'i')"""
            )
            return int(cursor.fetchone()[0])

    before = so_far()
    act()
    return so_far() - before


@pytest.mark.slow
def test_a_scrape_reads_as_much_of_a_large_table_as_of_a_small_one(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    define_charging()
    monkeypatch.setattr(bounded, "COUNT_LIMIT", 50)
    monkeypatch.setattr(money_at_risk, "FAILURES", 50)
    monkeypatch.setattr(late, "OLDEST", 50)
    monkeypatch.setattr(recent_failures, "FORGOTTEN", 50)
    read = []
    for number in (4_000, 12_000):
        fill(number)
        told(client)  # what Django reads once
        read.append(rows_read(lambda: told(client)))
    few, many = read
    assert few > 1_000
    assert many < few + 300, "a plan may change by a little"


@pytest.mark.django_db(transaction=True)
def test_a_scrape_is_so_many_statements_which_are_planned_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for make in (*rows.IN_STATE.values(), rows.open_task, rows.given_up, rows.overdue_wait, rows.undelivered_message):
        make(rows.waiting(task=False)) if make is rows.open_task else make()
    open_circuit("payments"), open_cause()
    wait, number = Wire._wait, 0

    def count(*args: Any, **kwargs: Any) -> Any:
        nonlocal number
        number += 1
        return wait(*args, **kwargs)

    connection.close()
    told(client)
    planned = {*wire_of(connection.connection)._prepared}
    monkeypatch.setattr(Wire, "_wait", count)
    told(client)
    assert {*wire_of(connection.connection)._prepared} == planned, "a parameter is another one each time"
    assert (number, number - len(planned)) <= (37, 7), "one more needs a reason"


@pytest.mark.slow
def test_what_stands_still_until_somebody_acts_is_counted_by_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = (
        money_at_risk.questions,
        money_at_risk.unclear_calls,
        late.with_late_deferred_steps,
        late.of_unknown_type,
    )
    define_charging()
    monkeypatch.setattr(bounded, "COUNT_LIMIT", 50)
    monkeypatch.setattr(late, "OLDEST", 50)
    read = []
    for number in (4_000, 12_000):
        fill(number)
        with connection.cursor() as cursor:
            cursor.execute(
                """SET CONSTRAINTS ALL IMMEDIATE; TRUNCATE workflows_manualtask; SET CONSTRAINTS ALL DEFERRED;
                   INSERT INTO workflows_manualtask (workflow_id, wait_id, task_type, question, due_at, expires_at)
                   SELECT id, id, 'effect_in_doubt', '', now(), now() FROM workflows_workflow WHERE status = 'PENDING';
                   TRUNCATE workflows_followup;
                   INSERT INTO workflows_followup (workflow_id, step, queue, due_at)
                   SELECT id, q, q, now() + (q < 'b')::int * interval '2 hours' - interval '1 hour'
                     FROM workflows_workflow CROSS JOIN unnest(ARRAY['aside', 'nightly']) q;
                   UPDATE workflows_workflow SET waiting_for = 'a release that knows the workflow type test'
                    WHERE status = 'PENDING';
                   ANALYZE workflows_manualtask, workflows_followup, workflows_workflow"""
            )
        read.append(rows_read(lambda: [look() for look in looks]))
    few, many = read
    assert few > 200
    assert many < few + 50


# --- Around it ----------------------------------------------------------------------------------------


def test_workers_that_fell_silent_lately_and_did_not_say_good_bye_are_lost(client: Client) -> None:
    now = timezone.now()
    rows.worker()
    for minutes, stopped_at in ((30, None), (40, now), (61, None)):
        worker = rows.worker(stopped_at=stopped_at)
        WorkerProcess.objects.filter(pk=worker.pk).update(last_seen=now - minutes * MINUTE)
    assert told(client)["lost_workers", ("host-a",)] == 1


@pytest.mark.django_db(transaction=True)
def test_the_oldest_transaction_is_told_of_and_not_our_own(client: Client) -> None:
    with another_connection() as other:
        assert told(client)["oldest_transaction_seconds", ()] == 0
        other.execute("BEGIN")
        began = other.execute("SELECT now()").fetchone()
        assert began
        found = told(client)["oldest_transaction_seconds", ()]
        assert 0 < found <= (timezone.now() - began[0]).total_seconds() + 1

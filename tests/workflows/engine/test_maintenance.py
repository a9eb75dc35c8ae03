"""Maintenance: when each is done, by whom, in slices of which size; and one that fails."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import Error, OperationalError, connection, connections
from django.db.models.functions import Now
from django.utils import timezone

from tests import engine
from tests.clock import Clock, standing_still
from tests.engine import another_connection, define, do_maintenance, elsewhere, no_maintenance, submit, work, worker
from workflows import operations
from workflows.engine import maintenance
from workflows.engine.maintenance import Maintenance
from workflows.errors import NotAllowed
from workflows.models import Chore, Signal, Workflow
from workflows.postgres.statements import execute
from workflows.signals import store, waking
from workflows.signals.waking import Slice
from workflows.waits import wait_for_signal

pytestmark = engine.ENGINE

SECOND = timedelta(seconds=1)


def await_paid(*, workflow: Workflow, context: Any) -> None:
    wait_for_signal(workflow, "payment", "paid", timeout=timedelta(hours=1))


@pytest.fixture
def asleep(engine: None) -> Workflow:
    define([await_paid])
    return work(submit())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return standing_still(monkeypatch, "workflows.engine.loop", "workflows.engine.maintenance")


def tell_and_wake_nobody(workflow: Workflow | None = None, *, key: object = "", **address: Any) -> None:
    """As a sender that dies between its two statements."""
    address = address or {"workflow_id": workflow and workflow.pk}
    store.store(source="shop", dedupe_key=str(key), name="paid", payload={}, **address)


def make_due() -> None:
    Chore.objects.update(due_at=timezone.now() - SECOND)


def rest_of(name: str) -> float:
    """Seconds until the maintenance task is due."""
    return (Chore.objects.get(pk=name).due_at - timezone.now()).total_seconds()


def only(monkeypatch: pytest.MonkeyPatch, **do: Any) -> Maintenance:
    """Nothing but these tasks."""
    monkeypatch.setattr(maintenance, "ENGINE_TASKS", {name: maintenance.Task(each) for name, each in do.items()})
    return Maintenance(())


# --- When, and by whom --------------------------------------------------------------------------------


def test_one_worker_of_all_does_maintenance(asleep: Workflow, clock: Clock) -> None:
    tell_and_wake_nobody(asleep)
    with no_maintenance():
        worker().run_maintenance()
        assert worker().process_next() is False
    worker().run_maintenance()
    assert worker().process_next() is True


def test_a_worker_looks_once_a_second_what_is_due(asleep: Workflow, clock: Clock) -> None:
    this = worker()
    this.run_maintenance()
    tell_and_wake_nobody(asleep)
    make_due()
    clock.now += 0.9
    this.run_maintenance()
    assert this.process_next() is False
    clock.now += 0.2
    this.run_maintenance()
    assert this.process_next() is True


def test_a_worker_looks_once_a_second_whether_a_migration_waits(engine: None, clock: Clock) -> None:
    this = worker()
    assert not this._is_held_up()
    with another_connection() as migrate:
        migrate.execute("SELECT pg_advisory_lock(7201407)")
        assert not this._is_held_up()
        clock.now += 1
        assert this._is_held_up()
        migrate.execute("SELECT pg_advisory_unlock(7201407)")  # the end of its session the server sees a moment later
    clock.now += 1
    assert not this._is_held_up()


def test_a_maintenance_task_whose_row_is_gone_gets_another_within_a_minute(asleep: Workflow, clock: Clock) -> None:
    """A database was restored under the workers, to a time before this release."""
    this = worker()
    this.run_maintenance()
    Chore.objects.all().delete()
    tell_and_wake_nobody(asleep)
    clock.now += 61
    this.run_maintenance()
    assert this.process_next()
    assert Chore.objects.count() == len(maintenance.tasks_of(engine.FEATURES))


def test_a_maintenance_task_that_was_done_is_due_a_second_later_for_all(asleep: Workflow) -> None:
    before = timezone.now()
    worker().run_maintenance()
    due = dict(Chore.objects.values_list("name", "due_at"))
    assert before < due["wake by signals"] <= timezone.now() + SECOND
    assert before + 50 * SECOND < due["forget workers"] <= timezone.now() + 60 * SECOND
    tell_and_wake_nobody(asleep)
    Chore.objects.update(due_at=timezone.now() + 30 * SECOND)
    worker().run_maintenance()
    assert worker().process_next() is False


@pytest.mark.parametrize(("took", "rests"), [(0.2, 4), (100, 60)])
def test_a_slice_that_changes_nothing_rests_twenty_times_as_long_as_it_took_and_no_longer_than_one_that_failed(
    took: float, rests: float, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(after: int) -> Slice:
        clock.now += took
        return Slice(0, 7)

    only(monkeypatch, searching=search)
    worker().run_maintenance()
    assert rests - 1 < rest_of("searching") <= rests
    assert Chore.objects.get().after == 7


def test_where_there_is_no_signal_and_no_parent_nothing_is_looked_for_among_the_workflows(asleep: Workflow) -> None:
    with engine.sent() as statements:
        for do in (waking.wake_by_new_signals, waking.wake_by_signals, waking.wake_parents, store.ignore_late_signals):
            assert do(0) == Slice(0)
    assert not [sql for sql in statements if "UPDATE" in sql]


def test_a_slice_that_has_changed_something_is_followed_by_the_next_at_once_but_not_for_ever(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []

    def change(after: int) -> Slice:
        clock.now += 0.1
        done.append(after)
        return Slice(5, after + 5)

    only(monkeypatch, changing=change)
    worker().run_maintenance()
    assert done == [0, 5, 10], "a quarter of a second of a worker's time"
    assert rest_of("changing") <= 0


@pytest.mark.parametrize(("asked", "rests"), [(30, 30), (130, 60)])
def test_a_slice_that_asks_for_a_rest_has_it_whatever_it_has_changed(
    asked: float, rests: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, purging=lambda after: Slice(5, after + 5, asked))
    worker().run_maintenance()
    assert rests - 1 < rest_of("purging") <= rests
    assert Chore.objects.get().after == 5


def test_the_last_slice_of_a_pass_that_has_changed_something_is_followed_by_another_pass_at_once(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [5, 5, 0]
    only(monkeypatch, changing=lambda after: Slice(left.pop(0)))
    worker().run_maintenance()
    assert left == []


def test_a_time_that_a_clock_has_left_far_ahead_keeps_no_maintenance_task_from_being_done(
    asleep: Workflow, clock: Clock
) -> None:
    """The server's clock was set back by an hour."""
    worker().run_maintenance()
    tell_and_wake_nobody(asleep)
    Chore.objects.update(due_at=timezone.now() + timedelta(hours=1))
    worker().run_maintenance()
    assert worker().process_next() is True


def test_a_maintenance_task_of_every_hour_waits_for_its_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "ENGINE_TASKS", {"hourly": maintenance.Task(lambda after: Slice(0), every=3600.0)})
    do_maintenance()
    due_at = Chore.objects.get().due_at
    Maintenance(()).run(seconds=0.2)
    assert Chore.objects.get().due_at == due_at


# --- Slices -------------------------------------------------------------------------------------------


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking, "SIGNALS", 2)
    monkeypatch.setattr(waking, "ROWS", 2)


def test_the_signals_of_all_slices_wake(small_slices: None, monkeypatch: pytest.MonkeyPatch) -> None:
    define([await_paid])
    waiting = [work(submit()) for _ in range(5)]
    for workflow in waiting:
        tell_and_wake_nobody(workflow, key=workflow.pk)
    Signal.objects.filter(workflow=waiting[0].pk).update(closed_at=timezone.now())
    slices = [waking.wake_by_signals(0)]
    while slices[-1].changed or slices[-1].next:
        slices.append(waking.wake_by_signals(slices[-1].next))
    assert [each.changed for each in slices] == [2, 0, 2, 0, 0], "each slice once more, for it was full"
    assert set(Workflow.objects.filter(invisible_until__lte=timezone.now())) == set(waiting[1:])


@pytest.mark.parametrize("do", [waking.wake_by_signals, waking.wake_by_new_signals])
def test_a_slice_wakes_so_many_of_a_linking_id_and_the_next_goes_on(small_slices: None, do: Any) -> None:
    define([await_paid])
    for _ in range(5):
        work(submit(linking_id="acc"))
    for key in ("one", "two"):  # a workflow that both are for is one row, and not two of the slice
        tell_and_wake_nobody(linking_id="acc", key=key)
    first = do(0)
    assert (first.changed, do(first.next).changed, do(first.next).changed) == (2, 2, 1)


def test_a_slice_compares_so_many_workflows_with_so_many_signals_of_their_linking_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """20,000 that wait for other payloads, and 1,000 signals, took 8 s: each try was cancelled, for ever."""
    monkeypatch.setattr(waking, "PAIRS", 6)
    define([await_paid])
    for _ in range(3):
        work(submit(linking_id="acc"))
    Workflow.objects.update(wake_matching={"n": 7})
    for key in range(5):
        tell_and_wake_nobody(linking_id="acc", key=key)
    second, fourth = (Signal.objects.order_by("id")[n].pk for n in (1, 3))
    assert waking.wake_by_signals(0) == Slice(0, second)
    assert waking.wake_by_signals(second) == Slice(0, fourth)
    assert waking.wake_by_signals(fourth) == Slice(0, 0)

    Workflow.objects.update(wake_matching={})
    Signal.objects.filter(pk__gt=second).update(name="shipped")
    assert waking.wake_by_new_signals().changed == 0, "the newest two are for something else"
    Signal.objects.filter(pk=fourth).update(name="paid")
    assert waking.wake_by_new_signals().changed == 3


def test_a_sender_wakes_so_many_of_a_linking_id_and_leaves_the_rest_to_maintenance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waking, "ROWS_OF_A_SENDER", 2)
    define([await_paid])
    for _ in range(3):
        work(submit(linking_id="acc"))
    store.send(source="shop", dedupe_key="1", name="paid", linking_id="acc", payload={})
    due = Workflow.objects.filter(invisible_until__lte=Now())
    assert due.count() == 2
    do_maintenance()
    assert due.count() == 3


def test_the_expired_are_woken_so_many_at_a_time(small_slices: None) -> None:
    define([await_paid])
    for _ in range(3):
        work(submit(expires_at=timezone.now() + timedelta(hours=1)))
    Workflow.objects.update(expires_at=timezone.now() - SECOND)
    assert [waking.wake_expired().changed for _ in range(3)] == [2, 1, 0]


def test_what_came_too_late_is_put_aside_slice_by_slice(small_slices: None) -> None:
    ended = submit(status="COMPLETE", completed_at=timezone.now())
    for number in range(5):
        tell_and_wake_nobody(submit(), key=number)
    Signal.objects.update(workflow=ended.pk)
    first = store.ignore_late_signals()
    assert Signal.objects.filter(ignored=True).count() == 2
    assert first.next
    do_maintenance()
    do_maintenance()
    do_maintenance()
    assert Signal.objects.filter(ignored=True).count() == 5


# --- One that fails -----------------------------------------------------------------------------------


def test_a_maintenance_task_that_fails_is_logged_and_tried_again_a_minute_later_and_stops_no_other(
    asleep: Workflow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(after: int) -> Slice:
        execute("SELECT 1 / 0")
        return Slice(0)

    tell_and_wake_nobody(asleep)
    with monkeypatch.context() as patched:
        only(patched, failing=fail, waking=waking.wake_by_signals)
        worker().run_maintenance()
        failed = Chore.objects.get(pk="failing")
        assert "the maintenance task 'failing' failed, and is tried again in 60 s: DivisionByZero" in caplog.text
        assert "DivisionByZero" in failed.error
        assert failed.failing_since
        assert 59 < rest_of("failing") <= 60
    assert worker().process_next() is True


def test_since_when_a_maintenance_task_fails_stands_with_it_until_it_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(after: int) -> Slice:
        raise ValueError

    with monkeypatch.context() as patched:
        only(patched, failing=fail)
        worker().run_maintenance()
        since = Chore.objects.get().failing_since
        make_due()
        worker().run_maintenance()
        assert Chore.objects.get().failing_since == since
        only(patched, failing=lambda after: Slice(0))
        make_due()
        worker().run_maintenance()
    chore = Chore.objects.get()
    assert (chore.failing_since, chore.error) == (None, "")


def test_a_slice_that_takes_too_long_is_ended_by_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def dawdle(after: int) -> Slice:
        execute("SELECT pg_sleep(30)")
        return Slice(0)

    monkeypatch.setattr(maintenance, "LONGEST_SLICE", 0.05)
    only(monkeypatch, slow=dawdle)
    worker().run_maintenance()
    assert "57014" in Chore.objects.get().error
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",), "for maintenance alone"


def test_a_worker_that_is_stopped_in_a_slice_keeps_the_maintenance_task_from_nobody(
    asleep: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "LONGEST_SILENCE", 0.2)

    def be_stopped(after: int) -> Slice:
        time.sleep(0.5)
        tell_and_wake_nobody(asleep)
        return Slice(0)

    this = only(monkeypatch, stopped=be_stopped)
    this.make_known()
    with pytest.raises(Error, match="idle-in-transaction timeout"):
        this.run()
    connections.close_all()
    assert not Signal.objects.exists(), "the server has ended its session"
    this.make_known()
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone() != ("200ms",), "of a slice, and of nothing else"


# --- One that kills its workers -------------------------------------------------------------------------


class Killed(BaseException):
    """As a SIGKILL: nothing of the process runs any more."""


def die(after: int) -> Slice:
    raise Killed


def try_once(this: Maintenance) -> None:
    """A worker of another process, after the silence of the last one."""

    def work() -> None:
        with suppress(Killed):
            this._run_slice()

    make_due()
    elsewhere(work)


def test_what_kills_three_workers_in_a_row_is_set_aside_until_a_person_lets_it_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[int] = []

    def go_well(after: int) -> Slice:
        done.append(after)
        return Slice(0)

    this = only(monkeypatch, deadly=die)
    this.make_known()
    Chore.objects.update(after=7)
    for deaths in (0, 1, 2):
        try_once(this)
        assert Chore.objects.values_list("deaths", "set_aside_at").get() == (deaths, None)
    assert 9 < rest_of("deadly") <= 10, "while a worker has it, it is not due"
    try_once(this)
    chore = Chore.objects.get()
    assert (chore.set_aside_at is not None, chore.begun_at, chore.after) == (True, None, 7)
    assert "3 workers in a row died in the maintenance task 'deadly': it is set aside" in caplog.text
    this = only(monkeypatch, deadly=go_well, other=go_well)
    this.make_known()
    try_once(this)
    assert done == [0], "the other one goes on"

    engineer = User.objects.create_user("engineer")
    with pytest.raises(PermissionDenied):
        operations.go_on("deadly", user=engineer, reason="Mended.")
    engineer = User.objects.create_superuser("boss")
    operations.go_on("deadly", user=engineer, reason="Mended.")
    try_once(this)
    assert (done, Chore.objects.get(pk="deadly").set_aside_at) == ([0, 7], None)
    with pytest.raises(NotAllowed, match="It is not set aside"):
        operations.go_on("deadly", user=engineer, reason="Once more.")


@pytest.mark.parametrize("between", [lambda after: Slice(0), lambda after: 1 / 0])
def test_a_worker_that_does_not_die_breaks_the_row(between: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for do in (die, die, between, die, die, die):
        this = only(monkeypatch, deadly=do)
        this.make_known()
        try_once(this)
    assert Chore.objects.values_list("deaths", "set_aside_at").get() == (2, None)


def test_a_worker_that_loses_the_database_in_a_slice_and_lives_is_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(after: int) -> Slice:
        execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return Slice(0)

    this = only(monkeypatch, losing=lose)
    this.make_known()
    for _ in range(5):
        make_due()
        with pytest.raises(OperationalError):
            this.run()
        connections.close_all()
    assert Chore.objects.values_list("deaths", "set_aside_at").get() == (0, None)


def test_a_worker_that_has_lost_the_database_in_a_slice_says_so_before_it_takes_up_a_long_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another one would count a death, ten seconds later."""
    begun: list[Any] = []

    def lose_once(after: int) -> Slice:
        if not begun:
            begun.append(submit())
            execute("COMMIT; SELECT pg_terminate_backend(pg_backend_pid())")
        return Slice(0)

    def long(*, workflow: Workflow, context: Any) -> None:
        begun.append(Chore.objects.values_list("begun_at", flat=True).get())

    define([long])
    only(monkeypatch, losing=lose_once)
    worker().run(drain=True)
    assert begun[1:] == [None]


def test_a_worker_that_was_stopped_before_its_slice_leaves_it_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    this = only(monkeypatch, slow=lambda after: done.append(after) or Slice(0))
    this.make_known()
    begun = maintenance._begin_due(this._tasks)
    assert begun
    assert maintenance._begin_due(this._tasks) is None
    make_due()
    assert elsewhere(this._run_slice)
    assert maintenance._carry_out(this._tasks[begun.name], begun)
    assert done == [0]


def test_that_a_slice_has_begun_costs_one_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    this = only(monkeypatch, idle=lambda after: Slice(0))
    this.make_known()
    make_due()
    with engine.sent() as statements:
        this.run()
    of_chores = [sql for sql in statements if "workflows_chore" in sql]
    assert len(of_chores) == 4, "begin, lock, end; and the look that finds nothing due"


def test_a_maintenance_task_that_loses_the_connection_is_the_loops_business(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lose(after: int) -> Slice:
        execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return Slice(0)

    only(monkeypatch, losing=lose)
    with pytest.raises(OperationalError):
        worker().run_maintenance()
    connections.close_all()
    assert (Chore.objects.get().error, caplog.text) == ("", "")

"""Undo of a decision within ten seconds: all see the decision at once, its workflow once, and later."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from django.db.models import F
from django.utils import timezone

from tests import engine
from tests.concurrency.rivals import ROUNDS, STAGGER, Rivals, kinds
from tests.concurrency.test_tasks import ask, asked
from tests.engine import another_connection, define, do_chore, seconds_until_due, submit, terminate, work
from workflows import operations
from workflows.engine.maintenance import Maintenance
from workflows.errors import NotAllowed
from workflows.features.installed import FEATURES
from workflows.models import Chore, Effect, Event, ManualTask, Signal, Wait, Workflow
from workflows.operations import undoing
from workflows.postgres.statements import execute, fetch_all

pytestmark = engine.ENGINE


@pytest.fixture(autouse=True)
def asks(engine: None, transactional_db: None) -> None:
    define([ask])
    Maintenance(FEATURES).make_known()


def waiting() -> tuple[Workflow, ManualTask]:
    """A workflow that waits for an approval, as its worker left it."""
    row = work(submit())
    return row, ManualTask.objects.get(workflow=row)


def undoable(rounds: int, by: User) -> list[ManualTask]:
    """Tasks whose approval by this user is held."""
    tasks = asked(rounds)
    ManualTask.objects.update(undoable=True)
    for task in tasks:
        assert undoing.approve(task.pk, user=by) == ""
    return tasks


def decided_ago(seconds: float) -> None:
    execute("UPDATE workflows_manualtask SET decided_at = clock_timestamp() - make_interval(secs => %s)", [seconds])


def store_due() -> int:
    return do_chore(undoing.CHORE).changed


def test_all_see_a_decision_at_once_and_its_workflow_after_ten_seconds(anna: User) -> None:
    row, task = waiting()
    undoing.approve(task.pk, user=anna, reason="Fine.")
    task.refresh_from_db()
    assert (task.state, task.decided_by, kinds(task)[-1]) == ("approved", anna, "approved")
    with pytest.raises(NotAllowed, match="anna approved it already"):
        operations.reject(task.pk, user=anna, reason="No.")
    decided_ago(undoing.UNDO_FOR - 3)
    assert (store_due(), Signal.objects.count()) == (0, 0)
    decided_ago(undoing.UNDO_FOR)
    assert (store_due(), store_due()) == (1, 0), "once"
    assert Signal.objects.get().payload == {"approved": True, "reason": "Fine.", "by": "anna"}
    assert work(row).status == "COMPLETE", "it was woken"


def test_whoever_undoes_it_has_the_task_back_and_may_decide_otherwise(anna: User, ben: User) -> None:
    row, task = waiting()
    ManualTask.objects.update(assignee=anna)
    undoing.approve(task.pk, user=anna)
    assert undoing.seconds_left(task.pk, anna)
    assert not undoing.seconds_left(task.pk, ben)
    with pytest.raises(NotAllowed, match="anna has decided it, and only they"):
        undoing.undo(task.pk, user=ben)
    assert undoing.undo(task.pk, user=anna) == f"Undone: task {task.pk} is open again."
    task.refresh_from_db()
    assert (task.state, task.decided_by, task.reason, task.held, task.assignee) == ("open", None, "", None, anna)
    assert kinds(task)[-2:] == ["approved", "decision_undone"]
    assert Event.objects.get(kind="decision_undone").detail == {"reason": "", "task": task.pk, "decision": "approved"}
    with pytest.raises(NotAllowed, match="It is not decided"):
        undoing.undo(task.pk, user=anna)
    undoing.reject(task.pk, user=anna, reason="No.")
    decided_ago(undoing.UNDO_FOR)
    assert store_due() == 1
    assert (work(row).status, Signal.objects.get().payload["approved"]) == ("FAILED", False)


@pytest.mark.parametrize("seconds", [undoing.UNDO_FOR, -3600], ids=["over", "the clock was set back"])
def test_what_is_not_undone_in_time_stands_and_is_not_late(anna: User, seconds: float) -> None:
    _, task = waiting()
    undoing.approve(task.pk, user=anna)
    decided_ago(seconds)
    assert not undoing.seconds_left(task.pk, anna)
    with pytest.raises(NotAllowed, match="The 10 seconds for an undo are over"):
        undoing.undo(task.pk, user=anna)
    assert store_due() == 1


@pytest.mark.parametrize(
    "why", ["engine's", "task expires", "workflow expires", "no task", "set aside", "failing", "overdue"]
)
def test_nothing_is_held_where_no_undo_is_possible_or_it_could_be_late(anna: User, why: str) -> None:
    _, task = waiting()
    soon = timezone.now() + timedelta(seconds=undoing.MARGIN)
    match why:
        case "engine's":
            ManualTask.objects.update(undoable=False)
        case "task expires":
            ManualTask.objects.update(expires_at=soon)
        case "workflow expires":
            Workflow.objects.update(expires_at=soon)
        case "no task":
            Chore.objects.filter(pk=undoing.CHORE).delete()
        case "set aside":
            Chore.objects.filter(pk=undoing.CHORE).update(set_aside_at=timezone.now())
        case "failing":
            Chore.objects.filter(pk=undoing.CHORE).update(failing_since=timezone.now())
        case "overdue":  # nobody has done it for a minute: no worker runs, or one of a release that does not know it
            Chore.objects.filter(pk=undoing.CHORE).update(due_at=timezone.now() - timedelta(seconds=undoing.MARGIN))
    undoing.approve(task.pk, user=anna)
    assert Signal.objects.get().name == task.signal_name
    assert not undoing.seconds_left(task.pk, anna)
    with pytest.raises(NotAllowed, match="the decision stands"):
        undoing.undo(task.pk, user=anna)


def test_what_others_decide_by_is_held_for_nobody(anna: User) -> None:
    """Bulk, the commands and what is built on `operations` tell the workflow at once."""
    row, task = waiting()
    operations.approve(task.pk, user=anna)
    assert work(row).status == "COMPLETE"


def test_a_deadline_that_passes_meanwhile_neither_expires_it_nor_keeps_a_worker_busy(anna: User) -> None:
    row, task = waiting()
    undoing.approve(task.pk, user=anna)
    Wait.objects.update(deadline=timezone.now())
    ManualTask.objects.update(expires_at=timezone.now())
    Workflow.objects.update(invisible_until=F("created_at"))
    row = work(row)
    assert (row.status, Wait.objects.get().outcome, Signal.objects.count()) == ("PENDING", "", 0)
    assert 0.5 < seconds_until_due(row) <= 1, "it looks again, and not at once"
    decided_ago(undoing.UNDO_FOR)
    assert store_due() == 1
    assert (work(row).status, Wait.objects.get().outcome) == ("COMPLETE", "approved")


def test_a_worker_that_dies_in_between_loses_and_doubles_nothing(anna: User) -> None:
    _, task = waiting()
    undoing.approve(task.pk, user=anna)
    decided_ago(undoing.UNDO_FOR)

    def die() -> None:
        with transaction.atomic():
            assert store_due() == 1
            terminate("default")
            Signal.objects.count()

    with pytest.raises(OperationalError):
        die()
    connection.close()
    assert Signal.objects.count() == 0
    assert (store_due(), Signal.objects.count(), store_due()) == (1, 1, 0)


def test_two_workers_store_it_once(rivals: Rivals, anna: User) -> None:
    for task in undoable(ROUNDS // 3, anna):
        execute("UPDATE workflows_manualtask SET decided_at = decided_at - interval '11 s' WHERE id = %s", [task.pk])
        stored = rivals.race(store_due, store_due)
        assert sum(stored) == 1
        assert Signal.objects.filter(workflow=task.workflow_id).count() == 1


def test_a_workflow_that_a_worker_has_is_not_undone_behind_its_back(anna: User) -> None:
    """It may be ending just now, and has closed its open tasks: one opened after that would ask for ever."""
    row, task = waiting()
    undoing.approve(task.pk, user=anna)
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [row.pk])
        with pytest.raises(NotAllowed, match="It is running right now"):
            undoing.undo(task.pk, user=anna)
    operations.cancel(row.pk, user=anna, reason="By phone.")
    with pytest.raises(NotAllowed, match="The workflow is cancelled by now"):
        undoing.undo(task.pk, user=anna)
    decided_ago(undoing.UNDO_FOR)
    assert (store_due(), Signal.objects.get().ignored) == (1, True)


def test_of_an_undo_and_the_end_of_its_time_one_wins(rivals: Rivals, anna: User) -> None:
    won: Counter[str] = Counter()
    for task in undoable(ROUNDS, anna):
        in_seconds = undoing.UNDO_FOR if rivals.rounds == 0 else random.uniform(0, 4 * (STAGGER + max(rivals.took)))
        execute(
            "UPDATE workflows_manualtask SET decided_at = clock_timestamp() - make_interval(secs => %s) WHERE id = %s",
            [undoing.UNDO_FOR - (0 if rivals.rounds == 1 else in_seconds), task.pk],
        )
        undone, _ = rivals.race(lambda task=task: undoing.undo(task.pk, user=anna), store_due)
        decided_ago(undoing.UNDO_FOR)
        store_due()
        task.refresh_from_db()
        signals = Signal.objects.filter(workflow=task.workflow_id).count()
        assert task.held is None
        if isinstance(undone, NotAllowed):
            assert (task.state, signals) == ("approved", 1)
        else:
            assert (task.state, signals) == ("open", 0)
            ManualTask.objects.filter(pk=task.pk).update(state="closed")
        won["stands" if signals else "undone"] += 1
    assert set(won) == {"stands", "undone"}, won


def test_of_an_undo_and_a_colleague_each_sees_what_the_other_has_done(rivals: Rivals, anna: User, ben: User) -> None:
    won: Counter[str] = Counter()
    for task in undoable(ROUNDS, anna):
        decided_ago(0)
        undone, decided = rivals.race(
            lambda task=task: undoing.undo(task.pk, user=anna),
            lambda task=task: operations.reject(task.pk, user=ben, reason="No."),
        )
        task.refresh_from_db()
        assert undone == f"Undone: task {task.pk} is open again."
        if decided == "":
            assert (task.state, task.decided_by) == ("rejected", ben)
            assert Signal.objects.get(workflow=task.workflow_id).payload["by"] == "ben"
        else:
            assert str(decided).startswith(("anna approved it already", "Somebody has changed it just now"))
            assert (task.state, Signal.objects.filter(workflow=task.workflow_id).count()) == ("open", 0)
        won[task.state] += 1
    assert set(won) == {"open", "rejected"}, won


@pytest.mark.parametrize("reverses", [True, False])
def test_of_an_undo_and_a_cancellation_no_task_stays_open_in_what_has_ended(
    rivals: Rivals, anna: User, ben: User, reverses: bool
) -> None:
    won: Counter[bool] = Counter()
    for task in undoable(ROUNDS // 2, anna):
        if reverses:
            done = {"state": "done", "result": {}, "has_undo": True, "attempt": 1, "idempotency_key": f"{task.pk}"}
            Effect.objects.create(workflow_id=task.workflow_id, step="pay", **done)
        decided_ago(0)
        undone, cancelled = rivals.race(
            lambda task=task: undoing.undo(task.pk, user=anna),
            lambda task=task: operations.cancel(task.workflow_id, user=ben, reason="By phone."),
        )
        task.refresh_from_db()
        is_undone, row = isinstance(undone, str), Workflow.objects.get(pk=task.workflow_id)
        if isinstance(cancelled, str) and not cancelled.startswith("It is running"):
            assert row.status == "FAILED" or row.compensating
            assert task.state == ("closed" if is_undone else "approved")
        else:
            assert (row.status, is_undone) == ("PENDING", True), "a worker obeys it, and closes what is open"
        won[is_undone] += 1
    assert set(won) == {True, False}, won


def test_of_undo_and_approve_again_at_speed_the_last_word_is_told_once(rivals: Rivals, anna: User) -> None:
    """The same person clicks faster than maintenance looks."""
    (task,) = undoable(1, anna)
    for _ in range(5):
        rivals.race(lambda: undoing.undo(task.pk, user=anna), store_due)
        if ManualTask.objects.get(pk=task.pk).state == "open":
            undoing.approve(task.pk, user=anna)
    decided_ago(undoing.UNDO_FOR)
    store_due()
    assert Signal.objects.get(workflow=task.workflow_id).payload["approved"] is True


def test_held_decisions_are_found_by_their_index() -> None:
    """Workers look every second, and decided tasks are as many as years have left."""
    with transaction.atomic():
        execute("SET LOCAL enable_seqscan = off", ())
        plan = "\n".join(line for (line,) in fetch_all(f"EXPLAIN {undoing._DUE}", ()))
    assert "manual_task_held" in plan, plan

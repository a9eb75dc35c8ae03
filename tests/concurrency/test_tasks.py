"""Two at once at a manual task, on two real connections: exactly one wins, and the other is told why."""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.utils import timezone

from tests import engine
from tests.concurrency.rivals import ROUNDS, STAGGER, Rivals, kinds
from tests.engine import define, worker
from workflows import operations
from workflows.definition import Step
from workflows.errors import NotAllowed
from workflows.models import Effect, ManualTask, Signal, State, Wait, Workflow
from workflows.postgres.statements import execute
from workflows.waits import require_approval

pytestmark = engine.ENGINE


def ask(*, workflow: Workflow, context: Any) -> None:
    require_approval(workflow, "review", question="May it go on?", timeout=timedelta(hours=1))


def pay(**_: Any) -> dict[str, Any]:
    return {}


def refund(**_: Any) -> None: ...


@pytest.fixture(autouse=True)
def asks(engine: None, transactional_db: None) -> None:
    define([ask])


def asked(rounds: int) -> list[ManualTask]:
    """Tasks as `ask` leaves them when it has suspended its workflow."""
    later = timezone.now() + timedelta(hours=1)
    made = Workflow.objects.bulk_create(
        Workflow(idempotency_key=uuid4(), workflow_type="test", payload={}, invisible_until=later, current_step="ask")
        for _ in range(rounds)
    )
    waits = Wait.objects.bulk_create(
        Wait(workflow_id=row.pk, name="review", waiting_for="May it go on?", deadline=later) for row in made
    )
    tasks = ManualTask.objects.bulk_create(
        ManualTask(workflow_id=wait.workflow_id, wait=wait, task_type="approval", question="?", expires_at=later)
        for wait in waits
    )
    execute(
        """UPDATE workflows_workflow w SET wake_on = ARRAY['decision:' || t.id]
             FROM workflows_manualtask t WHERE t.workflow_id = w.id"""
    )
    return tasks


def test_of_two_who_take_over_a_claim_that_counts_for_nothing_one_has_it(rivals: Rivals, anna: User, ben: User) -> None:
    """Whoever waits for the other's update sees that the claim now counts, also who would only give it back.

    A decision first: the claim is told of it. A claim first: the others are told whose the task is.
    """
    gone, won = User.objects.create_user("gone"), Counter[str]()
    carla = User.objects.create_user("carla", is_staff=True)
    carla.user_permissions.set(Permission.objects.filter(codename="decide_manualtask"))
    tasks = asked(ROUNDS)
    ManualTask.objects.update(assignee=gone, claimed_at=timezone.now())
    for number, task in enumerate(tasks):
        second = (operations.claim_task, operations.approve, operations.release_task)[number % 3]
        results = rivals.race(
            lambda task=task: operations.claim_task(task.pk, user=anna),
            lambda task=task, second=second: second(task.pk, user=carla),
        )
        task.refresh_from_db()
        if results[0] is None and second is not operations.release_task:
            assert str(results[1]).startswith("anna has claimed it, at ")
        if results[0] is None:
            assert (task.assignee, task.state) == (anna, "open")
        else:
            assert str(results[0]).startswith(("carla has claimed it, at ", "carla approved it already, at "))
            assert results[1] == ("" if second is operations.approve else None)
        kept = [kind for kind in kinds(task) if kind != "task_released"]
        assert kept == ["task_claimed" if task.state == "open" else "approved"]
        won["carla" if results[0] else "anna"] += 1
    assert set(won) == {"anna", "carla"}, won


def test_of_a_yes_and_a_no_one_is_the_decision_and_the_other_is_told_whose(
    rivals: Rivals, anna: User, ben: User
) -> None:
    won: Counter[str] = Counter()
    for task in asked(ROUNDS):
        results = rivals.race(
            lambda task=task: operations.approve(task.pk, user=anna),
            lambda task=task: operations.reject(task.pk, user=ben, reason="No."),
        )
        task.refresh_from_db()
        winner, loser = (0, 1) if task.state == "approved" else (1, 0)
        assert results[winner] == ""
        assert str(results[loser]).startswith(("anna approved it already, at ", "ben rejected it already, at ")[winner])
        assert Signal.objects.get(workflow=task.workflow_id).payload["approved"] is (task.state == "approved")
        assert kinds(task) == [task.state]
        won[task.state] += 1
    assert set(won) == {"approved", "rejected"}, won


def expires_in(task: ManualTask, seconds: float) -> None:
    """The deadline is near, and the workflow due: the worker looks at the task before, at or after the deadline."""
    with connection.cursor() as cursor:
        for table, column in (("wait", "deadline"), ("manualtask", "expires_at")):
            cursor.execute(
                f"UPDATE workflows_{table} SET {column} = clock_timestamp() + %s WHERE workflow_id = %s",
                [timedelta(seconds=seconds), task.workflow_id],
            )
        cursor.execute(
            "UPDATE workflows_workflow SET invisible_until = created_at WHERE id = %s",
            [task.workflow_id],
        )


def test_of_a_yes_and_the_deadline_one_is_the_outcome(rivals: Rivals, anna: User) -> None:
    """The worker's expiry, by a real worker; it waits again while the deadline has not come."""
    won: Counter[str] = Counter()
    this = worker()

    def work(task: ManualTask) -> None:
        rows = Workflow.objects.filter(pk=task.workflow_id, status="PENDING")
        until = time.monotonic() + 10
        while rows.exists() and time.monotonic() < until:
            this.process_next()

    for task in asked(ROUNDS):
        expires_in(task, random.uniform(0, 1.5 * (STAGGER + rivals.took[1])))
        _, decided = rivals.race(
            lambda task=task: work(task),
            lambda task=task: operations.approve(task.pk, user=anna),
        )
        task.refresh_from_db()
        row, wait = Workflow.objects.get(pk=task.workflow_id), Wait.objects.get(workflow=task.workflow_id)
        if isinstance(decided, NotAllowed):
            assert str(decided).startswith("It expired at ")
            assert (task.state, wait.outcome) == ("expired", "expired")
            assert (row.status, row.last_error_code) == ("FAILED", "approval_expired")
            assert not Signal.objects.filter(workflow=task.workflow_id).exists()
        else:
            assert (task.state, wait.outcome, row.status) == ("approved", "approved", "COMPLETE")
        won[task.state] += 1
    assert set(won) == {"approved", "expired"}, won


@pytest.mark.parametrize("undone", [True, False], ids=["with something to undo", "with nothing to undo"])
def test_of_an_approval_and_a_cancellation_one_wins_and_the_other_is_told_who(
    rivals: Rivals, anna: User, ben: User, undone: bool
) -> None:
    """Both have seen the question open. Who has seen the approval can still cancel."""
    define([Step(pay, once=True, undo=refund, lookup=refund), ask] if undone else [ask])
    won: Counter[str] = Counter()
    for task in asked(ROUNDS):
        if undone:
            done = {"state": "done", "result": {}, "has_undo": True, "attempt": 1, "idempotency_key": f"{task.pk}"}
            Effect.objects.create(workflow_id=task.workflow_id, step="pay", **done)

        def cancel(*open_tasks: int, task: ManualTask = task) -> Any:
            return operations.cancel(task.workflow_id, user=anna, reason="By phone.", open_tasks=open_tasks)

        cancelled, decided = rivals.race(
            lambda task=task, cancel=cancel: cancel(task.pk),
            lambda task=task: operations.approve(task.pk, user=ben),
        )
        task.refresh_from_db()
        row = Workflow.objects.with_state().get(pk=task.workflow_id)
        told = Signal.objects.filter(workflow=task.workflow_id)
        if decided == "":
            assert str(cancelled).startswith("ben has approved “?” since you looked")
            assert (task.state, row.status, row.compensating) == ("approved", "PENDING", False), "it goes on"
            assert kinds(task) == ["approved"]
            assert told.get().name == task.signal_name
            assert str(cancel()).startswith("It is cancelled")
        else:
            assert str(cancelled).startswith("It is cancelled")
            sentence = (
                "Its workflow went on without an answer." if undone else "Its workflow has finished; it is failed."
            )
            assert str(decided).startswith(sentence)
            assert (task.state, row.state) == ("closed", State.COMPENSATING if undone else State.CANCELLED)
            assert not told.exists()
        won["approved" if decided == "" else "cancelled"] += 1
    assert set(won) == {"approved", "cancelled"}, won

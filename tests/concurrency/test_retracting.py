"""An answer is retracted while a worker reads it, or writes what came of it: exactly one comes first."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tests import engine
from tests.concurrency.rivals import ROUNDS, Rivals
from tests.engine import another_connection, define, make_due, submit, until_blocked, with_its_connections, work, worker
from workflows import operations
from workflows.definition import Step
from workflows.effects import key_for
from workflows.errors import NotAllowed, UnknownOutcome
from workflows.models import Effect, ManualTask, Wait, Workflow
from workflows.models.effect import NextCallNumber

pytestmark = engine.ENGINE


class Bank:
    """A charge whose first answer is lost; what was charged, under which key."""

    def __init__(self) -> None:
        self.charged: list[str] = []

    def charge(self, *, workflow: Workflow, context: Any) -> dict[str, Any]:
        key = key_for(workflow, "charge")
        self.charged.append(key)
        if not key.endswith(":2"):
            raise UnknownOutcome("no answer")
        return {"number": 2}


@pytest.fixture
def bank() -> Bank:
    bank = Bank()
    define([Step(bank.charge, name="charge", once=True, settle=0, returns=("number",))])
    return bank


def in_doubt() -> ManualTask:
    """The question whether its charge happened, of a new workflow."""
    workflow = work(submit())
    make_due(workflow)
    work(workflow)
    return ManualTask.objects.get(workflow=workflow)


def read_no(anna: User) -> ManualTask:
    """The question answered with no, which a worker has read (as its UPDATE of the wait leaves it) and not acted on."""
    task = in_doubt()
    operations.reject(task.pk, user=anna, reason="Not there.")
    read = {"outcome": "rejected", "result": {"by": "anna"}, "resolved_at": timezone.now()}
    Wait.objects.filter(pk=task.wait_id).update(**read, call_number=NextCallNumber())
    return task


def test_of_a_worker_that_reads_a_no_and_somebody_who_takes_it_back_one_comes_first(
    rivals: Rivals, bank: Bank, anna: User, ben: User
) -> None:
    """The worker first: it has called again, and the no stands. Else nothing was called, and it is asked again."""
    won: Counter[str] = Counter()
    for _ in range(ROUNDS // 2):
        task = in_doubt()
        operations.reject(task.pk, user=anna, reason="Not there.")
        told, _ = rivals.race(
            lambda task=task: operations.retract(task.pk, user=ben, reason="It is there."),
            lambda: worker().process_next(),
        )
        task.refresh_from_db()
        row = Workflow.objects.get(pk=task.workflow_id)
        called = bank.charged.count(f"{row.key}:charge:2")
        if isinstance(told, NotAllowed):
            assert str(told).startswith(("It is running right now", "Its workflow is complete", "A worker was at it"))
            worker().process_next()  # should it have met the row while it was held
            assert Workflow.objects.get(pk=row.pk).status == "COMPLETE"
            assert (task.state, bank.charged.count(f"{row.key}:charge:2")) == ("rejected", 1)
        else:
            assert (task.state, called, row.status) == ("taken_back", 0, "PENDING")
            worker().process_next()  # unless the other one has come back to it
            effect = Effect.objects.get(workflow=row)
            assert (effect.state, effect.generation, bank.charged.count(f"{row.key}:charge")) == ("unknown", 1, 1)
            second = ManualTask.objects.get(workflow=row, state="open")
            operations.approve(second.pk, user=ben, answer={"number": 9})
            worker().process_next()
            assert Workflow.objects.get(pk=row.pk).context["number"] == 9
            assert bank.charged.count(f"{row.key}:charge:2") == 0
        won[task.state] += 1
    assert set(won) == {"rejected", "taken_back"}, won


def retracted_while_a_worker_writes(rivals: Rivals, task: ManualTask, anna: User, *statements: str) -> Future[Any]:
    """It has lost the row, and its last statement is on its way: who retracts waits for it."""
    with another_connection() as other, other.transaction():
        for statement in statements:
            other.execute(statement)
        retracting = rivals.pool.submit(
            with_its_connections, lambda: operations.retract(task.pk, user=anna, reason="It is there.")
        )
        until_blocked()
    return retracting


def test_a_call_that_a_worker_starts_with_its_last_statement_is_seen(rivals: Rivals, bank: Bank, anna: User) -> None:
    task = read_no(anna)
    first = Effect.objects.get()
    Effect.objects.update(state="not_done", settled_by="anna", settled_at=timezone.now())
    following = {"step": "charge", "generation": 2, "state": "not_done", "attempt": 1, "idempotency_key": "2"}
    Effect.objects.create(workflow_id=task.workflow_id, **following)
    begin = "UPDATE workflows_effect SET state = 'intent' WHERE generation = 2"
    retracting = retracted_while_a_worker_writes(rivals, task, anna, begin)
    with pytest.raises(NotAllowed, match="“Charge” was started since"):
        retracting.result(timeout=10)
    first.refresh_from_db()
    assert (first.state, Effect.objects.get(generation=2).state) == ("not_done", "intent")


def test_a_decision_that_a_worker_writes_with_its_last_statement_is_seen(
    rivals: Rivals, bank: Bank, anna: User
) -> None:
    """With the no it makes the next generation, which must not outlive it."""
    retracting = retracted_while_a_worker_writes(
        rivals,
        read_no(anna),
        anna,
        "UPDATE workflows_effect SET state = 'not_done', settled_by = 'anna', settled_at = clock_timestamp()",
        """INSERT INTO workflows_effect (workflow_id, step, generation, state, idempotency_key, attempt)
           SELECT workflow_id, step, 2, 'not_done', '2', attempt FROM workflows_effect""",
    )
    retracting.result(timeout=10)
    effect = Effect.objects.get()
    assert (effect.state, effect.generation, effect.settled_by) == ("unknown", 1, "")

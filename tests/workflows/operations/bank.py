"""A bank that loses the answer to a charge, what people say of that, and how they retract it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from tests.engine import again, define, submit, work, worker
from workflows import operations
from workflows.definition import Retry, Step, WorkflowStep
from workflows.effects import KnownEffect, key_for
from workflows.errors import NotAllowed, StepError, UnknownOutcome
from workflows.models import Effect, Event, ManualTask, Workflow
from workflows.waits import wait_for_signal

YES = {"number": 9}
WRONG = "I looked at another patient."


def moved(*, minutes: int = -10, where: str) -> None:
    """The times of these calls as the database's clock would have said them, had it been set back, or not yet.

    What was started after an answer is told by the order of the calls, and not by a clock.
    """
    times = ", ".join(
        f"{column} = {column} + interval '{minutes} minutes'" for column in ("begun_at", "first_begun_at")
    )
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE workflows_effect SET {times} WHERE {where}")


class Bank:
    """What was charged and refunded, under which key. The answer to the first charge is lost; refunds fail as told."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.refunded: list[str] = []
        self.refusals = 0

    def pay(self, *, workflow: Workflow, context: Any) -> dict[str, Any]:
        self.charged.append(key_for(workflow, "pay"))
        if len(self.charged) == 1:
            raise UnknownOutcome("no answer")
        return {"number": len(self.charged)}

    def refund(self, *, workflow: Workflow, context: Any, effect: KnownEffect) -> dict[str, Any]:
        if self.refusals:
            self.refusals -= 1
            raise StepError("No.", code="no_refunds")
        self.refunded.append(effect.undo_key)
        return {}

    def step(self, **policy: Any) -> Step:
        return Step(self.pay, **{"name": "pay", "once": True, "settle": 0, "returns": ("number",), **policy})


def pause(*, workflow: Workflow, context: Any) -> None:
    wait_for_signal(workflow, "pause", "go", timeout=timedelta(hours=1))


def ship(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"text": "p-1"}


def not_applicable(*, workflow: Workflow, context: Any) -> None: ...


def in_doubt(*steps: Step | WorkflowStep) -> tuple[Workflow, ManualTask]:
    """A workflow that asks whether its charge happened."""
    define(steps, retry=Retry(base_delay=0))
    workflow = again(work(submit()))
    assert workflow.waiting_for == "Unclear call: did “Pay” happen?"
    return workflow, ManualTask.objects.get()


def answer(task: ManualTask, user: User, said: dict[str, Any] | None) -> None:
    """Yes with these fields, or no."""
    if said is None:
        operations.reject(task.pk, user=user, reason="Not there.")
    else:
        operations.approve(task.pk, user=user, reason="Seen.", answer=said)


def retract(task: ManualTask, user: User) -> str:
    return operations.retract(task.pk, user=user, reason=WRONG)


def refused(task: ManualTask, user: User, why: str) -> None:
    """It stands, and everything is as it was."""
    before = list(Effect.objects.order_by("id").values()), list(Workflow.objects.values())
    state = ManualTask.objects.get(pk=task.pk).state
    with pytest.raises(NotAllowed, match=why):
        retract(task, user)
    assert before == (list(Effect.objects.order_by("id").values()), list(Workflow.objects.values()))
    assert ManualTask.objects.get(pk=task.pk).state == state
    assert not Event.objects.filter(kind="taken_back").exists()


def asked_again(workflow: Workflow) -> ManualTask:
    """The next run asks, by a new task, and does nothing else."""
    assert worker().process_next(), "it is not due"
    workflow.refresh_from_db()
    task = ManualTask.objects.latest("id")
    assert (task.state, workflow.waiting_for) == ("open", task.question)
    return task


def states() -> dict[str, str]:
    effects = Effect.objects.order_by("generation", "undo")
    return {f"undo {e.step}" if e.undo else f"{e.step} {e.generation}": e.state for e in effects}

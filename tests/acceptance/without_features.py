"""A release with no feature: whatever loads these definitions installs none (tests/acceptance/test_no_feature.py)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from workflows.definition import Retry, Step, WorkflowDefinition
from workflows.effects import KnownEffect
from workflows.errors import RetryableStepError, StepError
from workflows.features import installed
from workflows.models import Attempt, Workflow
from workflows.waits import require_approval, wait_for_signal

installed.FEATURES = installed.EXTENSIONS = ()


class Context(BaseModel):
    charge: str = ""


def stumble(*, workflow: Workflow, context: Context) -> None:
    if Attempt.objects.filter(workflow=workflow).count() == 1:
        raise RetryableStepError("Busy.")


def charge(*, workflow: Workflow, context: Context) -> dict[str, Any]:
    return {"charge": "ch_1"}


def refund(*, workflow: Workflow, context: Context, effect: KnownEffect) -> None:
    pass


def wait(*, workflow: Workflow, context: Context) -> None:
    wait_for_signal(workflow, "paid", "paid", timeout=timedelta(hours=1))


def ask(*, workflow: Workflow, context: Context) -> None:
    require_approval(workflow, "review", question="May it go on?", timeout=timedelta(hours=1))


def end(*, workflow: Workflow, context: Context) -> None:
    if workflow.payload["fails"]:
        raise StepError("No place is left.", code="full")


ALL_KINDS = WorkflowDefinition(
    name="all_kinds",
    context_class=Context,
    retry=Retry(base_delay=0.1),
    steps=[stumble, Step(charge, once=True, undo=refund), wait, ask, end],
)

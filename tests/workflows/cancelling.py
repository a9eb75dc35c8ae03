"""Steps of workflows that are cancelled or expire, and why."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from workflows.definition import Step
from workflows.errors import RetryableStepError
from workflows.models import Workflow
from workflows.signals import store
from workflows.waits import require_approval

BY_PHONE = "Asked for by phone."


def nothing(*, workflow: Workflow, context: Any) -> None: ...


def ask(*, workflow: Workflow, context: Any) -> None:
    require_approval(workflow, "review", question="May it?", timeout=timedelta(hours=1))


def flaky(*, workflow: Workflow, context: Any) -> None:
    raise RetryableStepError(code="busy")


def charge(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": 1}


def refund(*, workflow: Workflow, context: Any, effect: Any) -> None: ...


CHARGE = Step(charge, once=True, undo=refund)


def reread(workflow: Workflow) -> Workflow:
    return Workflow.objects.with_state().get(pk=workflow.pk)


def request_cancellation(workflow: Workflow) -> None:
    """As somebody does whose process dies before it wakes the workflow."""
    told = {"by": "ada", "reason": BY_PHONE}
    store.store(source="console", dedupe_key="cancel:1", name="cancel", workflow_id=workflow.pk, payload=told)

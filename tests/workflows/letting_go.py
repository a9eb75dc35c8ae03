"""A best-effort step that is let go, and then followed up: what the tests of deferred steps share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.utils import timezone

from tests.engine import define, submit, work
from tests.engine import worker as a_worker
from workflows.definition import Retry, Step
from workflows.errors import RetryableStepError
from workflows.models import FollowUp, Workflow

HOUR = timedelta(hours=1)
LATER = Retry(max_attempts=3, base_delay=60)

Act = Callable[[Workflow], Any]


class Confirmation:
    """A best-effort step that is let go at first, and then does what the test says."""

    def __init__(self, act: Act = lambda workflow: {}) -> None:
        self.act = act
        self.calls: list[int] = []

    def step(self, *, workflow: Workflow, context: Any) -> Any:
        self.calls.append(workflow.pk)
        if len(self.calls) == 1:
            raise RetryableStepError("Not now.")
        return self.act(workflow)


def let_go(act: Act = lambda workflow: {}, **policy: Any) -> tuple[Workflow, Confirmation]:
    """A COMPLETE workflow whose confirmation was let go, and that confirmation."""
    service = Confirmation(act)
    define([Step(service.step, **{"best_effort": True, "name": "confirm", "follow_up": LATER, **policy})])
    workflow = work(submit())
    assert workflow.status == "COMPLETE"
    return workflow, service


def come_due() -> None:
    FollowUp.objects.filter(due_at__isnull=False).update(due_at=timezone.now() - timedelta(seconds=1))


def follow_up() -> bool:
    come_due()
    return a_worker().process_from_sources()


def columns(workflow: Workflow) -> dict[str, Any]:
    row = Workflow.objects.get(pk=workflow.pk)
    return {field.name: getattr(row, field.attname) for field in Workflow._meta.fields}

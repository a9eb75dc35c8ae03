"""A service that the tests of outages call through the seam; it is well, unavailable, refuses, or cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.utils import timezone

from tests.engine import define, submit, worker
from workflows.effects import key_for
from workflows.errors import RetryableStepError, StepError, UnknownOutcome
from workflows.models import CircuitEvent, Service, Workflow
from workflows.outages import call_to

SECOND = timedelta(seconds=1)


class Downstream:
    """`state` is "well", "down", "refusing" or "unreadable"; `calls` are those that have arrived."""

    def __init__(self, name: str = "programs") -> None:
        self.name = name
        self.state = "well"
        self.calls: list[int] = []
        self.refunds: list[int] = []

    def call(self, workflow: Workflow) -> None:
        with call_to(self.name) as call:
            self.calls.append(workflow.pk)
            if self.state == "down":
                call.unavailable()
                raise RetryableStepError("It is down.", code="down")
            if self.state == "refusing":
                call.answered()
                raise StepError("It says no.", code="no")
            if self.state == "unreadable":
                raise UnknownOutcome("Whatever that means.", code="unreadable")

    def step(self, *, workflow: Workflow, context: Any) -> dict[str, Any]:
        key_for(workflow, "step")
        self.call(workflow)
        return {}

    def undo(self, *, workflow: Workflow, context: Any, effect: Any) -> None:
        self.call(workflow)
        self.refunds.append(workflow.pk)


def open_circuit(name: str = "programs", *, trial_in: float = 60.0) -> Service:
    """The circuit as so many votes have opened it; a trial is due in so many seconds."""
    now = timezone.now()
    service, _ = Service.objects.update_or_create(
        name=name,
        defaults={
            "opened_at": now - SECOND,
            "retry_at": now + trial_in * SECOND,
            "since": now - 3 * SECOND,
            "failed": 5,
            "failed_at": now - SECOND,
            "suspects": [1, 2, 3],
        },
    )
    return service


def trial_is_due(name: str = "programs") -> None:
    Service.objects.filter(name=name).update(retry_at=timezone.now() - SECOND)


def circuit(name: str = "programs") -> Service:
    return Service.objects.get(name=name)


def story(name: str = "programs") -> list[str]:
    return list(CircuitEvent.objects.filter(service=name).order_by("id").values_list("kind", flat=True))


def submit_and_work(count: int = 1) -> list[Workflow]:
    """So many workflows, each processed once by the same worker."""
    submitted = [submit() for _ in range(count)]
    this = worker()
    for _ in submitted:
        assert this.process_next()
    return [Workflow.objects.get(pk=each.pk) for each in submitted]


def parked(service: Downstream, count: int = 1, *, steps: Sequence[Any] = (), trial_in: float = 60.0) -> list[Workflow]:
    """So many workflows that have met the service's circuit open; their one step calls it, if no steps are given."""
    define(steps or [service.step])
    open_circuit(service.name, trial_in=trial_in)
    return submit_and_work(count)


def due() -> int:
    return Workflow.objects.due().count()


def ends_at_once(*, workflow: Workflow, context: Any) -> None: ...

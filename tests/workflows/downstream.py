"""A service that the tests of the ledger call, and workflows whose call is in doubt."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import connections

from tests.engine import define, submit, work
from workflows import effects
from workflows.definition import Step
from workflows.errors import RetryableStepError, StepError, UnknownOutcome
from workflows.models import Attempt, Effect, Workflow


class Downstream:
    """A service that remembers what it was asked, and fails as it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.errors: list[BaseException] = []
        self.answers: list[dict[str, Any] | None] = []  # instead of a number
        self.undone: list[str] = []
        self.undo_errors: list[BaseException] = []
        self.found: list[Mapping[str, Any] | None] = []
        self.looked_up: list[effects.KnownEffect] = []

    def call(self, *, workflow: Workflow, context: Any) -> dict[str, Any] | None:
        applies = bool(self.errors) or self.answers[:1] != [None]
        # A step that does not apply has not asked for its key: with that in its hand it would be in doubt.
        self.calls.append(effects.key_for(workflow, "call") if applies else effects.key_in_use(workflow))
        if self.errors:
            raise self.errors.pop(0)
        if self.answers:
            return self.answers.pop(0)
        return {"number": len(self.calls)}

    def lookup(self, *, workflow: Workflow, context: Any, effect: effects.KnownEffect) -> Mapping[str, Any] | None:
        self.looked_up.append(effect)
        return self.found.pop(0)

    def undo(self, *, workflow: Workflow, context: Any, effect: effects.KnownEffect) -> None:
        self.undone.append(effect.undo_key)
        if self.undo_errors:
            raise self.undo_errors.pop(0)


def call_step(service: Downstream, **policy: Any) -> Step:
    return Step(service.call, once=True, name="call", **policy)


def fail_at_first(*, workflow: Workflow, context: Any) -> None:
    if Attempt.objects.filter(workflow=workflow).count() == 1:
        raise RetryableStepError


def state() -> str:
    return Effect.objects.latest("generation").state


def unknown(service: Downstream, **policy: Any) -> Workflow:
    """A workflow whose call timed out."""
    service.errors = [UnknownOutcome("no answer")]
    define([call_step(service, **policy)])
    return work(submit())


KEY_TTL = timedelta(hours=1)


def past_its_key() -> None:
    with connections["attempt_log"].cursor() as cursor:
        cursor.execute("UPDATE workflows_effect SET first_begun_at = first_begun_at - interval '2 hours'")
        cursor.execute("UPDATE workflows_effect SET begun_at = begun_at - interval '1 hour'")


def fail(*, workflow: Workflow, context: Any) -> None:
    raise StepError("No.", code="no")

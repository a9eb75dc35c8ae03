"""A world that remembers what was done and undone in it, for the tests of compensation, and steps that fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User

from tests.engine import again, define, submit, work
from workflows.definition import Step
from workflows.effects import KnownEffect, key_for
from workflows.errors import RetryableStepError, StepError
from workflows.models import Effect, Workflow

BY_HAND = {"kept": False, "reference": "re-9"}
NEVER = {"kept": False, "never_happened": True}


class World:
    """Services that remember what was done and undone, under which key, and fail as they are told."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.errors: dict[str, list[BaseException]] = {}
        self.found: dict[str, Mapping[str, Any] | None] = {}
        self.contexts: dict[str, Any] = {}

    def step(self, name: str, **policy: Any) -> Step:
        """A `once` step that logs itself, with an undo that does so too."""

        def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
            self._log(name, key_for(workflow, name))
            return {"tags": [*context.tags, name]}

        def undo(*, workflow: Workflow, context: Any, effect: KnownEffect) -> dict[str, Any]:
            self.contexts[name] = context
            assert key_for(workflow, name) == effect.undo_key == f"{effect.idempotency_key}:undo"
            self._log(f"undo {name}", effect.undo_key)
            return {"undone": name}

        return Step(call, **{"name": name, "once": True, "undo": undo, **policy})

    def lookup(self, *, workflow: Workflow, context: Any, effect: KnownEffect) -> Mapping[str, Any] | None:
        self.log.append(f"look for {effect.step}")
        return self.found.get(effect.step)

    def _log(self, what: str, key: str) -> None:
        self.log.append(what)
        if self.errors.get(what):
            raise self.errors[what].pop(0)


def fail(*, workflow: Workflow, context: Any) -> None:
    raise StepError("No.", code="refused")


def flaky(*, workflow: Workflow, context: Any) -> None:
    raise RetryableStepError(code="busy", max_attempts=2, base_delay=0)


def to_rest(workflow: Workflow, most: int = 20) -> Workflow:
    workflow.refresh_from_db()
    while workflow.status == "PENDING":
        assert (most := most - 1), f"still {workflow.waiting_for or workflow.current_step}"
        workflow = again(workflow)
    return workflow


def states() -> dict[str, str]:
    """Of each effect, its undo as `undo name`."""
    effects = Effect.objects.order_by("id")
    return {f"undo {e.step}" if e.undo else e.step: e.state for e in effects}


def ada() -> User:
    return User.objects.get_or_create(username="ada", is_superuser=True)[0]


def in_doubt(world: World, **policy: Any) -> Workflow:
    """A workflow that failed in a call of which nobody knows whether it happened."""
    world.errors["charge"] = [ValueError("not JSON")]
    define([world.step("reserve"), world.step("charge", **{"settle": 0, **policy})])
    workflow = work(submit())
    assert states() == {"reserve": "done", "charge": "unknown"}
    return workflow

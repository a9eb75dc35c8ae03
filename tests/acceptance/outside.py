"""The tests' side of tests.acceptance.definitions: what to submit, when to go on, what was done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import engine
from workflows.models import Attempt, Workflow


def submit(workflow_type: str, effects: Path, payload: dict[str, Any] | None = None, **fields: Any) -> Workflow:
    """Store a workflow whose steps tell `effects` what they do, and which `hold` until open_gate()."""
    places = {"log": str(effects), "gate": str(effects.with_name("gate"))}
    return engine.submit({**places, **(payload or {})}, workflow_type=workflow_type, **fields)


def open_gate(effects: Path) -> None:
    effects.with_name("gate").touch()


def done(effects: Path, what: str) -> list[int]:
    """The workflows that have done `what`, in the order they did."""
    rows = (line.split() for line in effects.read_text().splitlines())
    return [int(workflow) for workflow, did, _ in rows if did == what]


def begun(workflow: Workflow, effects: Path, times: int = 1) -> Callable[[], bool]:
    return lambda: done(effects, "begin").count(workflow.pk) == times


def now(workflow: Workflow) -> Workflow:
    return Workflow.objects.get(pk=workflow.pk)


def attempts(workflow: Workflow) -> list[str]:
    """How its attempts ended, the first one first; the empty string is one that runs."""
    return list(Attempt.objects.filter(workflow=workflow).order_by("number").values_list("outcome", flat=True))


def who_runs(workflow: Workflow) -> int:
    """The process of its last attempt."""
    return int(engine.last_attempt(workflow).worker.rpartition(":")[2])

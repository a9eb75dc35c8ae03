"""The steps of a workflow, each with what an attempt did in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workflows.admin import words
from workflows.definition import WorkflowDefinition, wording_of
from workflows.models import Attempt, Effect, StepOutcome
from workflows.wording import words_for_step

OUTCOMES = {"": "Not reached", **dict(StepOutcome.choices)}


@dataclass(frozen=True, slots=True)
class StepLine:
    """What happened to one step in an attempt."""

    name: str
    outcome: str
    label: str
    title: str = ""
    ms: int | None = None
    error: str = ""
    note: str = ""


def step_lines(
    definition: WorkflowDefinition | None, attempt: Attempt | None, effects: Sequence[Effect] = ()
) -> list[StepLine]:
    """The definition's steps in order, each with what the attempt did and whether that was undone.

    After them come the steps of the attempt that have left the list.
    """
    undone = undone_steps(effects)
    done = {line.name: line for line in lines_of(attempt, definition)}
    if definition is None:
        return list(done.values())
    lines = []
    for step in definition.steps:
        name = next((name for name in step.names if name in done), "")
        title = words_for_step(definition.wording, step.name).title
        line = done.pop(name, StepLine(step.name, "", OUTCOMES[""], title))
        since = step.identity in undone and line.outcome
        lines.append(replace(line, note="reversed since") if since else line)
    return lines + [replace(line, note="no longer in the list") for line in done.values()]


def lines_of(attempt: Attempt | None, definition: WorkflowDefinition | None = None) -> list[StepLine]:
    """What an attempt did, in the order in which it ran."""
    wording = wording_of(definition)
    steps: Sequence[Mapping[str, Any]] = attempt.steps if attempt else []
    return [
        StepLine(
            name=step["step"],
            outcome=step["outcome"],
            label=OUTCOMES.get(step["outcome"], step["outcome"]),
            title=words_for_step(wording, step["step"]).title,
            ms=step.get("ms"),
            error=recorded_error(step),
        )
        for step in steps
    ]


def undone_steps(effects: Sequence[Effect]) -> list[str]:
    """The steps that were undone, and not done again since."""
    latest = {effect.step: effect.state for effect in effects if not effect.undo}
    return [step for step, state in latest.items() if state == Effect.State.UNDONE]


def recorded_error(recorded: Mapping[str, Any]) -> str:
    """An error as an attempt or an event has recorded it."""
    code, error_class, message = (str(recorded.get(f"error_{part}") or "") for part in ("code", "class", "message"))
    return words.error(code=code, error_class=error_class, message=message)

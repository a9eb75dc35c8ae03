"""The steps of a workflow, each with what an attempt did in it, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workflows.charges import ChargeState, judged
from workflows.definition import WorkflowDefinition, undo_of, wording_of, wording_of_type
from workflows.models import Attempt, Effect, StepOutcome, Workflow
from workflows.telling import words
from workflows.wording import Wording, known_words_for_code, words_for_step

OUTCOMES = {"": "Not reached", **dict(StepOutcome.choices)}


@dataclass(frozen=True, slots=True)
class StepLine:
    """What happened to one step in an attempt; `recorded` is its error as it was recorded, if its code has words."""

    name: str
    outcome: str
    label: str
    title: str = ""
    ms: int | None = None
    error: str = ""
    recorded: str = ""
    note: str = ""


def step_lines(
    definition: WorkflowDefinition | None, attempt: Attempt | None, effects: Sequence[Effect] = ()
) -> list[StepLine]:
    """The definition's steps, then those that have left it, each with what the attempt did and if it was undone."""
    undone = undone_steps(definition, effects)
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
    return [_line(wording, step) for step in steps]


def _line(wording: Wording, step: Mapping[str, Any]) -> StepLine:
    error, recorded = told_error(wording, step)
    return StepLine(
        name=step["step"],
        outcome=step["outcome"],
        label=OUTCOMES.get(step["outcome"], step["outcome"]),
        title=title_of(wording, step["step"]),
        ms=step.get("ms"),
        error=error,
        recorded=recorded,
    )


def undone_steps(definition: WorkflowDefinition | None, effects: Sequence[Effect]) -> list[str]:
    """The steps that were undone, and not done again since; not one that charges, and has charged nothing."""
    latest = {effect.step: effect.state for effect in effects if not effect.undo}
    charged = {each.call.step: each.state for each in judged(definition, effects, reversing=False)}
    return [
        step
        for step, state in latest.items()
        if state == Effect.State.UNDONE and charged.get(step) != ChargeState.NOTHING
    ]


def title_of(wording: Wording, name: str) -> str:
    """A step's title, also by the name of its undo (`undo charge`); empty for no step."""
    of_step = name.removeprefix(undo_of(""))
    if of_step != name:
        return f"Reversal of {words_for_step(wording, of_step).titled}"
    return words_for_step(wording, name).title if name else ""


def step_of(workflow: Workflow, name: str) -> str:
    """The title of a step of this workflow; empty for no step."""
    return title_of(wording_of_type(workflow.workflow_type), name)


def told_error(wording: Wording, recorded: Mapping[str, Any]) -> tuple[str, str]:
    """An error in the words for its code, and as it was recorded; without words as recorded, and nothing else."""
    known = known_words_for_code(wording, str(recorded.get("error_code") or ""))
    return (known.staff, _recorded(recorded)) if known else (_recorded(recorded), "")


def _recorded(recorded: Mapping[str, Any]) -> str:
    code, error_class, message = (str(recorded.get(f"error_{part}") or "") for part in ("code", "class", "message"))
    return words.error(code=code, error_class=error_class, message=message)

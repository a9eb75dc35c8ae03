"""The steps of a workflow, each with what an attempt did in it, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workflows.charges import ChargeState, judged
from workflows.definition import Step, WorkflowDefinition, undo_of, wording_of, wording_of_type
from workflows.models import Attempt, Effect, StepOutcome, Workflow
from workflows.telling import words
from workflows.wording import Wording, known_words_for_code, words_for_step

OUTCOMES = {"": "Not reached", **dict(StepOutcome.choices)}


@dataclass(frozen=True, slots=True)
class StepLine:
    """What happened to a step in an attempt. `recorded` is the error as recorded, if its code has words."""

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
    """The definition's steps, then those that have left it, each with what the attempt did and if it was undone.

    If the attempt has no record of a step, because its worker died or it still runs, the ledger and the order decide.
    """
    undone = undone_steps(definition, effects)
    done = {line.name: line for line in lines_of(attempt, definition)}
    if definition is None:
        return list(done.values())
    calls = {effect.step: effect.state for effect in effects if not effect.undo}
    reached = _reached(definition, attempt, calls)
    lines = []
    for number, step in enumerate(definition.steps):
        name = next((name for name in step.names if name in done), "")
        line = done.pop(name, None) or _not_told(step, attempt, calls.get(step.identity), number - reached)
        title = words_for_step(definition.wording, step.name).title
        if step.identity in undone and line.outcome:
            line = replace(line, outcome=StepOutcome.UNDONE, note="reversed since")
        lines.append(replace(line, title=title))
    return lines + [replace(line, note="no longer in the list") for line in done.values()]


# What a finished call says of its step.
_ON_RECORD = {
    Effect.State.DONE: (StepOutcome.RECORDED, "Done, as its call is on record"),
    Effect.State.SKIPPED: (StepOutcome.SKIPPED, OUTCOMES[StepOutcome.SKIPPED]),
    Effect.State.UNDONE: (StepOutcome.RAN, OUTCOMES[StepOutcome.RAN]),
}


def _reached(definition: WorkflowDefinition, attempt: Attempt | None, calls: Mapping[str, str]) -> int:
    """The index of the last step that was started, by the worker's death or a call; -1 if that is unknown.

    A call that was undone may belong to an earlier run.
    """
    died_in = attempt.died_in if attempt else ""
    standing = {step for step, state in calls.items() if state != Effect.State.UNDONE}
    begun = [n for n, step in enumerate(definition.steps) if died_in in step.names or step.identity in standing]
    return max(begun, default=-1)


def _not_told(step: Step, attempt: Attempt | None, call: str | None, beyond: int) -> StepLine:
    """A step without a record in the attempt. `beyond` is its distance behind the last step that was started.

    Steps run from top to bottom, so an earlier one was done. That is unknown for a step whose call is not on record,
    and for a best-effort step, which may have failed.
    """
    if call in _ON_RECORD:
        return StepLine(step.name, *_ON_RECORD[Effect.State(call)])
    if attempt and attempt.outcome == Attempt.Outcome.COMPLETE:
        return StepLine(step.name, StepOutcome.SKIPPED, "Not in the list then")
    if attempt and attempt.died_in in step.names:
        return StepLine(step.name, StepOutcome.WAITING, "Its worker died here")
    if beyond < 0 and not (step.once or step.best_effort):
        return StepLine(step.name, StepOutcome.RAN, "Done, as a later step was begun")
    return StepLine(step.name, "", OUTCOMES[""])


def lines_of(attempt: Attempt | None, definition: WorkflowDefinition | None = None) -> list[StepLine]:
    """What an attempt did, in order."""
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
    """The steps that were undone and not done again since, except a step that should have charged but did not."""
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
    """An error in the words for its code, and as recorded, for engineers. A code without words is no headline."""
    known, as_recorded = known_words_for_code(wording, str(recorded.get("error_code") or "")), _recorded(recorded)
    return (known.staff if known else "Something unforeseen happened." if as_recorded else ""), as_recorded


def _recorded(recorded: Mapping[str, Any]) -> str:
    code, error_class, message = (str(recorded.get(f"error_{part}") or "") for part in ("code", "class", "message"))
    return words.error(code=code, error_class=error_class, message=message)

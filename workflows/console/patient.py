"""What to tell the patient, in words that staff can read out or paste; and the fields by which a caller is verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workflows.console import words
from workflows.definition import WorkflowDefinition, value_at, wording_of
from workflows.models import Effect, State, Workflow
from workflows.wording import Wording, words_for_code, words_for_step

_NOTHING_TO_DO = "You need not do anything."
LINES = {
    State.QUEUED: f"We have received it and are working on it. {_NOTHING_TO_DO}",
    State.RUNNING: f"We are working on it just now. {_NOTHING_TO_DO}",
    State.RETRYING: f"We are working on it; it takes longer than usual. {_NOTHING_TO_DO}",
    State.WAITING: f"We are waiting for something before we go on. {_NOTHING_TO_DO}",
    State.PARKED: f"A service that we need is out of order. It goes on by itself when it is back. {_NOTHING_TO_DO}",
    State.COMPLETE: "Everything is done.",
    State.CANCELLED: "This was cancelled.",
    State.FAILED: "",
    State.COMPENSATING: "",
}
REFUNDED = "What you paid was given back."
BEING_REFUNDED = "What you paid is being given back."


def to_tell(
    definition: WorkflowDefinition | None,
    workflow: Workflow,
    *,
    passed_over: Sequence[str] = (),
    effects: Sequence[Effect] = (),
    asked: bool = False,
) -> str:
    """What to tell the patient about a workflow, by its state.

    `passed_over` are the codes of best-effort steps that failed, `effects` its calls; `asked`: it waits for a person
    of ours.
    """
    wording = wording_of(definition)
    state = State(workflow.state)
    if state == State.WAITING:
        waiting = words_for_step(wording, workflow.current_step).waiting
        own = "Our team is checking something before we go on. " + _NOTHING_TO_DO if asked else LINES[state]
        return waiting or own
    if state == State.COMPLETE:
        return " ".join([LINES[state], *(wording.codes[code].patient for code in passed_over if code in wording.codes)])
    money = _money(wording, effects, state)
    if state == State.CANCELLED or workflow.cancelled_at:
        return f"{LINES[State.CANCELLED]} {money}".strip()
    if state in (State.FAILED, State.COMPENSATING):
        return f"{words_for_code(wording, workflow.last_error_code).patient} {money}".strip()
    return LINES[state]


def _money(wording: Wording, effects: Sequence[Effect], state: State) -> str:
    """A sentence about what was paid and is given back, or was; empty when nothing was, or when that is not known."""
    if wording.money is None:
        return ""
    states = {
        effect.state
        for effect in effects
        if effect.step == wording.money.step and not effect.undo and (effect.result or {}).get(wording.money.reference)
    }
    if Effect.State.DONE in states:
        return BEING_REFUNDED if state == State.COMPENSATING else ""
    return REFUNDED if Effect.State.UNDONE in states else ""


@dataclass(frozen=True, slots=True)
class Verified:
    """A field of the caller's: its label, and the part of the value that staff may see."""

    label: str
    shown: str


def caller(definition: WorkflowDefinition | None, payload: Mapping[str, Any]) -> list[Verified]:
    """The fields by which staff verify who calls, in the definition's order.

    Those that were not sent are left out, and so is what is neither a text nor a number: nobody has checked it yet.
    """
    fields = definition.wording.caller if definition else ()
    values = [(field, value_at(payload, field.path)) for field in fields]
    return [
        Verified(field.label, words.cut(field.show(value))) for field, value in values if words.is_text_or_number(value)
    ]


def sent(definition: WorkflowDefinition | None, payload: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The fields that were sent, with the values that the definition calls public, parts of some, and masks."""
    if definition is None:
        return words.masked_fields(payload)
    parts = {field.path: field.show for field in definition.wording.caller}
    return words.masked_fields(payload, definition.public_fields, parts)

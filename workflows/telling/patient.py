"""What to tell the patient, in words that staff can read out or paste; and the fields by which a caller is verified."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db.models import Case, Expression, JSONField, Value, When
from django.db.models.fields.json import KeyTransform

from workflows.definition import WorkflowDefinition, definitions, value_at, wording_of, wording_of_type
from workflows.effects import IN_DOUBT
from workflows.engine import undo_question
from workflows.models import Attempt, Effect, Event, ManualTask, State, StepOutcome, Workflow
from workflows.telling import words
from workflows.telling.sentence import cause_of
from workflows.wording import words_for_code, words_for_step

_NOTHING_TO_DO = "You do not need to do anything."
LINES = {
    State.QUEUED: f"We have received it and are working on it. {_NOTHING_TO_DO}",
    State.RUNNING: f"We are working on it just now. {_NOTHING_TO_DO}",
    State.RETRYING: f"We are working on it; it takes longer than usual. {_NOTHING_TO_DO}",
    State.WAITING: f"We are waiting for something before we go on. {_NOTHING_TO_DO}",
    State.PARKED: f"A system that we need is down. We continue as soon as it is back. {_NOTHING_TO_DO}",
    State.COMPLETE: "Everything is done.",
    State.CANCELLED: "This was cancelled.",
    State.FAILED: "",
    State.COMPENSATING: "",
}
# In place of that of a workflow which waits for a service: many fail at a step, and somebody mends it.
TO_BE_MENDED = f"There is a technical problem on our side, and we go on when it is mended. {_NOTHING_TO_DO}"
# What the patient of a failed or cancelled workflow hears of a charge. The ledger decides, not the state alone: nobody
# is told of a refund that is not under way.
REFUNDED = "Your payment was refunded."
NOT_REFUNDED = "Your payment was not refunded."
UNCLEAR = "We are finding out whether you were charged. If you were, you will get your money back."
UNKNOWN = "We cannot tell yet whether you were charged."
BEING_REFUNDED = "Your refund is on its way."
REFUND_DELAYED = "Your refund is on its way; it is taking longer than usual."
REFUND_ASKED = "We could not refund your payment yet. Our team is working on it."
DECIDING = "We are deciding how to go on. Your payment stands until then."
PAID_SO_FAR = "Your payment stays as it is. If we cannot go on, you get it back."


def to_tell(
    definition: WorkflowDefinition | None,
    workflow: Workflow,
    *,
    passed_over: Sequence[str] = (),
    effects: Sequence[Effect] = (),
    asked: bool = False,
    to_be_mended: bool = False,
) -> str:
    """What to tell the patient about a workflow, by its state.

    `passed_over` are the codes of failed best-effort steps, `effects` its calls; `asked`: it waits for a person of
    ours; `to_be_mended`: it is parked at a step where many fail.
    """
    wording = wording_of(definition)
    state = State(workflow.state)
    if state == State.WAITING:
        waiting = words_for_step(wording, workflow.current_step).waiting
        own = "Our team is checking something before we go on. " + _NOTHING_TO_DO if asked else LINES[state]
        return waiting or own
    if state == State.COMPLETE:
        return " ".join([LINES[state], *(wording.codes[code].patient for code in passed_over if code in wording.codes)])
    money = _money(definition, effects, workflow, asked=asked)
    if state == State.CANCELLED or workflow.cancelled_at:
        return f"{LINES[State.CANCELLED]} {money}".strip()
    if state == State.PARKED and to_be_mended:
        return f"{TO_BE_MENDED} {money}".strip()
    if state in (State.FAILED, State.COMPENSATING):
        return f"{words_for_code(wording, workflow.last_error_code).patient} {money}".strip()
    return LINES[state]


def message_of(workflow: Workflow) -> str:
    """The same, of a row with its `state`: it reads what that state needs."""
    state, effects, passed_over = State(workflow.state), [], {}
    if state in (State.FAILED, State.CANCELLED, State.COMPENSATING, State.PARKED):
        effects = list(Effect.objects.filter(workflow=workflow).defer("error_message"))
    if state == State.COMPLETE:
        run = Attempt.objects.filter(workflow=workflow, outcome=Attempt.Outcome.COMPLETE).first()
        passed_over = passed_over_in(workflow, run)
    waits = state in (State.WAITING, State.COMPENSATING)
    return to_tell(
        definitions().get(workflow.workflow_type),
        workflow,
        passed_over=list(passed_over.values()),
        effects=effects,
        asked=waits and ManualTask.objects.open().filter(workflow=workflow).exists(),
        to_be_mended=state == State.PARKED and cause_of(workflow) is not None,
    )


def passed_over_in(workflow: Workflow, attempt: Attempt | None) -> dict[str, str]:
    """The best-effort steps that failed in an attempt and were not done since, each with its error's code."""
    steps: Sequence[Mapping[str, Any]] = attempt.steps if attempt else []
    failed = [step for step in steps if step["outcome"] == StepOutcome.BEST_EFFORT_FAILED]
    if not failed:
        return {}
    followed_up = Event.objects.filter(workflow=workflow, kind=Event.Kind.FOLLOWED_UP)
    done = set(followed_up.values_list("step", flat=True))
    return {step["step"]: str(step.get("error_code") or "") for step in failed if step["step"] not in done}


def _money(definition: WorkflowDefinition | None, effects: Sequence[Effect], workflow: Workflow, *, asked: bool) -> str:
    """A sentence about what was paid and what becomes of it; empty when nothing was."""
    money = definition.wording.money if definition else None
    if definition is None or money is None:
        return ""
    calls = [effect for effect in effects if effect.step in definition.charge_names and not effect.undo]
    deciding = undo_question.is_undecided(definition, workflow)
    if any(effect.state in IN_DOUBT for effect in calls):
        return UNCLEAR if workflow.state == State.COMPENSATING and not deciding else UNKNOWN
    charges = {effect.state: effect for effect in calls if (effect.result or {}).get(money.reference)}
    if Effect.State.DONE in charges and workflow.state == State.COMPENSATING:
        if deciding:
            return DECIDING
        if asked:
            return REFUND_ASKED
        failed = charges[Effect.State.DONE].undo_failures or charges[Effect.State.DONE].undo_unavailable
        return REFUND_DELAYED if failed or workflow.parked_on else BEING_REFUNDED
    if Effect.State.DONE in charges and workflow.state == State.PARKED:
        step = definition.find_step(charges[Effect.State.DONE].step)
        return PAID_SO_FAR if step and step.undo else ""
    if charges.keys() & {Effect.State.DONE, Effect.State.KEPT}:
        return NOT_REFUNDED
    return REFUNDED if charges else ""


def caller(definition: WorkflowDefinition | None, payload: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The fields by which staff verify a caller, in the definition's order: label, and the part that staff may see.

    Missing fields are left out, and so is what is neither a text nor a number: nothing has checked it yet.
    """
    fields = definition.wording.caller if definition else ()
    values = [(field, value_at(payload, field.path)) for field in fields]
    return [(field.label, words.cut(field.show(value))) for field, value in values if words.is_text_or_number(value)]


def sent(definition: WorkflowDefinition | None, payload: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The fields that were sent, with public values, parts of some, and masks."""
    if definition is None:
        return words.masked_fields(payload)
    parts = {field.path: field.show for field in definition.wording.caller}
    return words.masked_fields(payload, definition.public_fields, parts)


def masked(ids: Collection[int]) -> dict[int, str]:
    """Whom these workflows are about."""
    rows = Workflow.objects.filter(pk__in=ids).annotate(about=about())
    return {pk: masked_by(name, value) for pk, name, value in rows.values_list("pk", "workflow_type", "about")}


def about() -> Expression:
    """In SQL: the first field of what the caller is verified by; nothing else of what was sent."""
    fields = {name: fields[0] for name, each in definitions().items() if (fields := each.wording.caller)}
    told = [When(workflow_type=name, then=_at(field.path)) for name, field in fields.items()]
    return Case(*told, output_field=JSONField()) if told else Value(None, JSONField())


def masked_by(workflow_type: str, value: Any) -> str:
    """The part of this field that staff may see in a list."""
    fields = wording_of_type(workflow_type).caller
    return words.cut(fields[0].show(value)) if fields and words.is_text_or_number(value) else ""


def _at(path: str) -> KeyTransform:
    value: Any = "payload"
    for name in path.split("."):
        value = KeyTransform(name, value)
    return value  # type: ignore[no-any-return]

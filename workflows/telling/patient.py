"""What staff tell the patient, in words that they can read out or paste; and the fields that verify a caller."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db.models import Case, Expression, Func, JSONField, TextField, Value, When
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Cast, JSONArray
from django.utils import timezone
from django.utils.text import capfirst

from workflows.charges import Charge, ChargeState, charges_the_patient, judged
from workflows.definition import WorkflowDefinition, definitions, value_at, wording_of, wording_of_type
from workflows.engine import undo_question
from workflows.models import (
    Attempt,
    Confirmation,
    Correction,
    Effect,
    Event,
    ManualTask,
    State,
    StepOutcome,
    Workflow,
)
from workflows.models.workflow import PAUSED
from workflows.operations import amounts, two_people
from workflows.postgres.statements import fetch_all
from workflows.telling import words
from workflows.telling.sentence import is_at_a_cause
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
# Replaces what the step waits for while a person has paused it: nothing of that is under way.
IS_PAUSED = "This is paused for now, and we go on with it after that."
# Replaces the sentence for an outage if a workflow waits for the repair of a step at which many fail.
TO_BE_MENDED = f"There is a technical problem on our side, and we go on when it is mended. {_NOTHING_TO_DO}"
# Sentences about a charge, for patients of failed or cancelled workflows. They follow the ledger, not only the state:
# nobody hears of a refund that is not under way.
REFUNDED = "Your payment was refunded."
NOT_CHARGED = "You were not charged."
NOT_REFUNDED = "Your payment was not refunded."
UNCLEAR = "We are finding out whether you were charged. If you were, you will get your money back."
UNKNOWN = "We cannot tell yet whether you were charged."
UNCLEAR_LEFT = "We cannot tell whether you were charged. If you were, that was not refunded."
REFUND_UNCLEAR_LEFT = "We cannot tell whether your payment was refunded."
BEING_REFUNDED = "Your refund is on its way."
REFUND_DELAYED = "Your refund is on its way; it is taking longer than usual."
REFUND_ASKED = "We could not refund your payment yet. Our team is working on it."
DECIDING = "We are deciding how to go on. Your payment stands until then."
REFUND_UNKNOWN = "We cannot tell yet whether your payment was refunded. Our team is working on it."
# Replaces everything else while a colleague has yet to confirm that a call was made by hand: nobody pays twice.
PAID_BY_HAND = "We are confirming a payment. Please do not pay again; we will tell you how it goes on."
DONE_BY_HAND = f"We are confirming what our team has done, and go on then. {_NOTHING_TO_DO}"
# Replaces what an error's code says while a colleague has yet to approve that a failed workflow goes on: its words may
# ask the patient to start again, and both would go through.
TO_GO_ON = "Our team is looking at this again, and goes on with it if that is possible. Please do not send it again."
# Added after a charge, for all other patients.
IF_NOT = "If we cannot go on, you get your money back."


def to_tell(
    definition: WorkflowDefinition | None,
    workflow: Workflow,
    *,
    passed_over: Sequence[str] = (),
    effects: Sequence[Effect] = (),
    amount: str = "",
    aim: str = "",
    asked: bool = False,
    to_be_mended: bool = False,
    by_hand: bool = False,
    to_go_on: bool = False,
    wrong: Sequence[str] = (),
    paused_until: datetime | None = None,
) -> str:
    """What to tell the patient about a workflow, by its state.

    `passed_over` are the codes of failed best-effort steps, `effects` its calls. `amount`: a charge in words, if known.
    `aim`: what the patient gets in the end, if known. `asked`: it waits for one of our people. `to_be_mended`: it is
    parked at a step where many fail. `by_hand`: somebody says that the call of its step was made by hand, and nobody
    has confirmed it. `to_go_on`: see `is_to_go_on`. `wrong`: the labels of the fields that it failed for.
    `paused_until`: the end that somebody has named for its pause, if known.
    """
    if by_hand:
        return PAID_BY_HAND if charges_the_patient(definition, workflow.current_step) else DONE_BY_HAND
    wording = wording_of(definition)
    state = State(workflow.state)
    is_undecided = undo_question.is_undecided(definition, workflow)
    of_charges = () if wording.money and wording.money.pays_out else effects  # nobody's card is charged
    charges = judged(definition, of_charges, reversing=workflow.compensating and not is_undecided)
    so_far = _so_far(charges, amount, state, aim)
    in_the_end = _undecided(charges) if is_undecided else _in_the_end(charges, workflow, asked=asked)
    if state == State.WAITING and workflow.waiting_for == PAUSED:
        is_to_come = paused_until is not None and paused_until > timezone.now()
        by = f"We expect that by {words.day(paused_until)}." if paused_until and is_to_come else ""
        return " ".join(filter(None, [IS_PAUSED, by, so_far]))
    if state == State.WAITING:
        waiting = words_for_step(wording, workflow.current_step).waiting
        own = "Our team is checking something before we go on. " + _NOTHING_TO_DO if asked else LINES[state]
        return f"{waiting or own} {so_far}".strip()
    if state == State.COMPLETE:
        lines = [wording.codes[code].patient for code in passed_over if code in wording.codes]
        done = LINES[state]
        if aim and workflow.completed_at:
            done = f"Everything is done: {aim} was set up on {words.day(workflow.completed_at)}."
        return " ".join(filter(None, [done, so_far, *lines]))
    if state == State.CANCELLED or workflow.cancelled_at:
        is_paid = wording.money is not None and not wording.money.pays_out
        is_free = is_paid and all(each.state in (ChargeState.NOTHING, ChargeState.NEVER) for each in charges)
        return f"{LINES[State.CANCELLED]} {NOT_CHARGED if is_free else in_the_end}".strip()
    if state in (State.FAILED, State.COMPENSATING):
        fields = f"Missing or wrong: {', '.join(dict.fromkeys(wrong))}." if wrong else ""
        told = [TO_GO_ON] if to_go_on else [words_for_code(wording, workflow.last_error_code).patient, fields]
        return " ".join(filter(None, [*told, in_the_end]))
    return f"{TO_BE_MENDED if state == State.PARKED and to_be_mended else LINES[state]} {so_far}".strip()


def message_of(workflow: Workflow) -> str:
    """The same for a row with its `state`. Reads what that state needs."""
    state, definition = State(workflow.state), definitions().get(workflow.workflow_type)
    effects, amount = _charges_of(workflow, definition) if definition else ([], "")
    is_complete = state == State.COMPLETE
    passed_over = fetch_all("SELECT code FROM workflows_passed_over(%s)", [workflow.pk]) if is_complete else ()
    waits = state in (State.WAITING, State.COMPENSATING)
    return to_tell(
        definition,
        workflow,
        passed_over=[code for (code,) in passed_over],
        effects=effects,
        amount=amount,
        asked=waits and ManualTask.objects.open().filter(workflow=workflow).exists(),
        to_be_mended=state == State.PARKED and is_at_a_cause(workflow),
        by_hand=state == State.FAILED and Confirmation.objects.of_failure(workflow, two_people.BY_HAND).exists(),
        to_go_on=is_to_go_on(workflow),
    )


def is_to_go_on(workflow: Workflow) -> bool:
    """Whether somebody has asked that a failed workflow be corrected, or charged again, and nobody has decided that."""
    if workflow.state != State.FAILED:
        return False
    retries = Confirmation.objects.of_failure(workflow, two_people.RETRIED)
    return retries.exists() or Correction.objects.open().filter(workflow=workflow.pk).exists()


def amount_told(definition: WorkflowDefinition | None, payload: Mapping[str, Any]) -> str:
    """A charge in words, as `to_tell` takes it."""
    money = definition.wording.money if definition else None
    return amounts.known(value_at(payload, money.amount), value_at(payload, money.currency)) if money else ""


def aim_told(definition: WorkflowDefinition | None, payload: Mapping[str, Any]) -> str:
    """What the patient gets in the end, as `to_tell` takes it; empty if the definition has no words for it.

    `message_of` has none: it is for the sender, who knows it, and the intake may not read what was sent.
    """
    aim = definition.wording.aim if definition else None
    value = value_at(payload, aim.field) if aim else None
    name = aim.names.get(value) if aim and isinstance(value, str) else None
    return f"{aim.what} {name}" if aim and name else ""


def _charges_of(workflow: Workflow, definition: WorkflowDefinition) -> tuple[Sequence[Effect], str]:
    """Its charges and their amount, by one statement without payload and results; none if no step charges."""
    if (money := definition.wording.money) is None:
        return [], ""
    amount = Func("workflow_id", *map(_path, (money.amount, money.currency)), function="workflows_amount")
    call = Func("pk", Value(money.reference), function="workflows_call")
    rows = Effect.objects.filter(workflow=workflow, step__in=definition.charge_names).order_by("pk").only(*_OF_A_CALL)
    effects = list(rows.annotate(amount=Cast(amount, JSONField()), call=Cast(call, JSONField())))
    for effect in effects:
        effect.result, effect.settled_by = effect.call["result"], effect.call["settled_by"]
        effect.by_hand = effect.call["by_hand"]
    return effects, amounts.known(*(effects[0].amount or (None, None))) if effects else ""


# Without its result, the message of its error, its reference if it was made by hand, and who settled it.
_OF_A_CALL = (
    *("workflow_id", "step", "generation", "undo", "state", "has_undo", "undo_failures", "undo_unavailable"),
    "begun_at",
)


def _path(field: str) -> Value:
    return Value(field.split("."), ArrayField(TextField()))


def passed_over_in(workflow: Workflow, attempt: Attempt | None) -> dict[str, str]:
    """The best-effort steps that failed in an attempt and were not done since, each with its error's code."""
    steps: Sequence[Mapping[str, Any]] = attempt.steps if attempt else []
    failed = [step for step in steps if step["outcome"] == StepOutcome.BEST_EFFORT_FAILED]
    if not failed:
        return {}
    followed_up = Event.objects.filter(workflow=workflow, kind=Event.Kind.FOLLOWED_UP)
    done = set(followed_up.values_list("step", flat=True))
    return {step["step"]: str(step.get("error_code") or "") for step in failed if step["step"] not in done}


def _so_far(charges: Sequence[Charge], amount: str, state: State, aim: str) -> str:
    """The patient's charges while nothing is refunded, a sentence for each, and what is still to come of it."""
    held, is_over = [each for each in charges if each.is_held], state == State.COMPLETE
    to_come = f"{aim} is still being set up." if aim and not is_over else ""
    if not held:
        refunded = REFUNDED if any(each.state == ChargeState.REFUNDED for each in charges) else ""
        return f"{refunded} {capfirst(to_come)}".strip()
    told = [_charged(each, f" {amount}" if amount else "", is_over=is_over) for each in held]
    if to_come and not held[-1].is_unclear:
        told[-1] = f"{told[-1].removesuffix('.')}; {to_come}"
    elif to_come:
        told.append(capfirst(to_come))
    returned = not is_over and any(each.is_reversible for each in held)
    return " ".join([*told, *([IF_NOT] if returned else [])])


def _charged(charge: Charge, amount: str, *, is_over: bool) -> str:
    on = words.day(charge.call.begun_at)
    if charge.call.by_hand:
        return f"Your payment{amount and f' of{amount}'} has been on our books since {on}."
    if not charge.is_unclear:
        return f"Your card was charged{amount} on {on}."
    finds_out = charge.state == ChargeState.UNCLEAR and not is_over
    return f"Your card may have been charged{amount} on {on}{'; we are finding out' * finds_out}."


def _undecided(charges: Sequence[Charge]) -> str:
    """The sentence for the patient of a failed workflow while a person decides whether to reverse it."""
    if any(each.is_unclear for each in charges):
        return UNKNOWN
    if any(each.is_held for each in charges):
        return DECIDING
    return REFUNDED if any(each.state == ChargeState.REFUNDED for each in charges) else ""


def _in_the_end(charges: Sequence[Charge], workflow: Workflow, *, asked: bool) -> str:
    """What becomes of the charges of a failed or cancelled workflow; empty if there are none."""
    is_late = bool(workflow.parked_on)
    told = {each.state: each for each in charges}
    if unclear := told.get(ChargeState.UNCLEAR):
        return UNCLEAR if workflow.compensating and unclear.is_reversible else UNKNOWN
    if refund := told.get(ChargeState.REFUND_UNCLEAR):
        if asked or not workflow.compensating:
            return REFUND_UNKNOWN
        return REFUND_DELAYED if is_late or refund.call.undo_failures else BEING_REFUNDED
    if workflow.compensating and told.keys() & {ChargeState.REFUND_FAILED, ChargeState.TO_BE_REFUNDED}:
        if asked:
            return REFUND_ASKED
        return REFUND_DELAYED if is_late or ChargeState.REFUND_FAILED in told else BEING_REFUNDED
    if workflow.compensating and any(each.is_held and each.call.by_hand for each in charges):
        return REFUND_ASKED
    if ChargeState.UNCLEAR_LEFT in told:
        return UNCLEAR_LEFT
    if ChargeState.REFUND_UNCLEAR_LEFT in told:
        return REFUND_UNCLEAR_LEFT
    if any(each.is_held for each in charges):
        return NOT_REFUNDED
    return REFUNDED if ChargeState.REFUNDED in told else ""


def caller(definition: WorkflowDefinition | None, payload: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The fields by which staff verify a caller, in the definition's order: label, and the part that staff may see.

    Leaves out missing fields, and values that are neither text nor number: nothing has checked them yet.
    """
    fields = definition.wording.caller if definition else ()
    values = [(field, value_at(payload, field.path)) for field in fields]
    return [(field.label, words.cut(field.show(value))) for field, value in values if words.is_text_or_number(value)]


def sent(definition: WorkflowDefinition | None, payload: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The fields of the payload: public values, parts of some, and masks."""
    if definition is None:
        return words.masked_fields(payload)
    parts = {field.path: field.show for field in definition.wording.caller}
    return words.masked_fields(payload, definition.public_fields, parts)


def masked(ids: Collection[int]) -> dict[int, str]:
    """The masked names of the people whom these workflows are about."""
    rows = Workflow.objects.filter(pk__in=ids).annotate(about=about())
    return {pk: masked_by(name, value) for pk, name, value in rows.values_list("pk", "workflow_type", "about")}


def listed(ids: Collection[int]) -> dict[int, tuple[str, str]]:
    """Of each of these workflows: the masked name of the person whom it is about, and what it charges, if known."""
    rows = Workflow.objects.filter(pk__in=ids).annotate(about=about(), charges=amounts_of_charges())
    return {
        pk: (masked_by(name, value), amounts.known(*(charges or (None, None))))
        for pk, name, value, charges in rows.values_list("pk", "workflow_type", "about", "charges")
    }


def amounts_of_charges() -> Expression:
    """SQL for the amount of a charge and its currency, as JSON; nothing else of the payload. NULL without charges."""
    found = {name: money for name, each in definitions().items() if (money := each.wording.money)}
    told = [
        When(workflow_type=name, then=JSONArray(payload_at(money.amount), payload_at(money.currency)))
        for name, money in found.items()
    ]
    return Case(*told, output_field=JSONField()) if told else Value(None, JSONField())


def about() -> Expression:
    """SQL for the first field that verifies a caller. Reads nothing else of the payload."""
    fields = {name: fields[0] for name, each in definitions().items() if (fields := each.wording.caller)}
    told = [When(workflow_type=name, then=payload_at(field.path)) for name, field in fields.items()]
    return Case(*told, output_field=JSONField()) if told else Value(None, JSONField())


def masked_by(workflow_type: str, value: Any) -> str:
    """The part of this field that staff may see in a list."""
    fields = wording_of_type(workflow_type).caller
    return words.cut(fields[0].show(value)) if fields and words.is_text_or_number(value) else ""


def payload_at(path: str, payload: str = "payload") -> KeyTransform:
    """SQL for the value of a payload's field."""
    value: Any = payload
    for name in path.split("."):
        value = KeyTransform(name, value)
    return value  # type: ignore[no-any-return]

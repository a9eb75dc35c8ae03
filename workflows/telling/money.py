"""THE MONEY of a workflow in words: what was charged, when, under which reference, and what became of it.

`workflows.charges` says what became of each charge; this has the sentences for staff.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workflows.charges import Charge, ChargeState, judged, moves_money
from workflows.definition import WorkflowDefinition, definitions
from workflows.effects import NOT_DONE, SKIPPED
from workflows.engine import undo_question
from workflows.models import Confirmation, Effect, Workflow
from workflows.operations import amounts
from workflows.operations.amounts import UNKNOWN, amount
from workflows.redaction import masked_reference, private_part
from workflows.telling import words
from workflows.wording import Money

State = Effect.State
NOTHING, NOTHING_OUT = "Nothing has been charged.", "Nothing has been paid out."
UNKNOWN_HERE = "This release does not know the type, nor what its calls have charged."


def money_line(
    workflow: Workflow,
    definition: WorkflowDefinition | None,
    payload: Mapping[str, Any],
    effects: Sequence[Effect],
    *,
    claimed_by: str = "",
) -> str:
    """A sentence for each charge of `effects` (oldest first); empty if the definition has no words for money.

    `claimed_by` says that the call of the failed step was made by hand, and nobody else has confirmed it.
    """
    if definition is None and claimed_by:
        said = f"{claimed_by} says that a call was made by hand, which may have been a charge"
        return f"{UNKNOWN_HERE} {said}; nobody has confirmed it yet."
    if definition is None:
        return UNKNOWN_HERE if any(effect.state not in (NOT_DONE, SKIPPED) for effect in effects) else ""
    if definition.wording.money is None:
        return ""
    money = definition.wording.money
    told = [
        _sentence(charge, money, payload, private_part(payload, definition.public_fields))
        for charge in judged(definition, effects, reversing=is_reversing(workflow, definition))
        if charge.state != ChargeState.NOTHING
    ]
    if claimed_by and moves_money(definition, workflow.current_step):
        said = f"{claimed_by} says that {amount(payload, money)} was {money.moved} by hand"
        told.append(f"{said}; nobody has confirmed it yet.")
    return " ".join(told) or (NOTHING_OUT if money.pays_out else NOTHING)


def _sentence(charge: Charge, money: Money, payload: Mapping[str, Any], private: Any) -> str:
    """The sentence for a charge. Its time is the start of the call, because a lookup finds it later."""
    call, what = charge.call, amount(payload, money)
    if charge.state == ChargeState.NEVER:
        return f"{what} was not {money.moved}: {call.settled_by} said so at {words.clock(call.settled_at)}."
    at = words.clock(call.begun_at)
    if call.by_hand:
        reference = masked_reference(charge.reference or call.by_hand, private)
        said = f", as {_who_said(call)} at {at}" if call.state == State.DONE else f", as was said at {at}"
        since = f"{_since(charge, money, private)}; the sum is that of the submission"
        return f"{what} {money.moved} by hand{said}, {reference}{since}."
    if charge.state == ChargeState.UNCLEAR:
        return f"Unclear: {what} may have been {money.moved} at {at}."
    named = f", {masked_reference(charge.reference, private)}" if charge.reference else ""
    charged = f"{what} {money.moved} at {at}{named}" if named else f"{what} may have been {money.moved} at {at}"
    return f"{charged}{_since(charge, money, private)}."


def _who_said(call: Effect) -> str:
    """Who said that it was made by hand: it is settled by the last of them, the user who confirmed it."""
    confirmed = Confirmation.objects.filter(workflow=call.workflow_id, answer__reference=call.by_hand)
    confirmed = confirmed.filter(decision="by_hand", state=Confirmation.State.CONFIRMED).order_by("-id")
    if not (found := confirmed.select_related("asked_by", "decided_by").first()) or not found.decided_by:
        return f"{call.settled_by} said"
    return f"{found.asked_by.get_username()} said and {found.decided_by.get_username()} confirmed"


def _since(charge: Charge, money: Money, private: Any) -> str:
    """What became of the charge."""
    call, undo = charge.call, charge.undo
    refund, refunded = money.undo
    match charge.state:
        case ChargeState.REFUNDED:
            return f"; {refunded}{_how(undo, money, private)}"
        case ChargeState.LEFT:
            return f"; left as it is by {call.settled_by}"
        case ChargeState.REFUND_UNCLEAR_LEFT if undo:
            began = f"; a {refund} was started at {words.clock(undo.begun_at)}, and its outcome is not known"
            return f"{began}; left as it is by {call.settled_by}"
        case ChargeState.UNCLEAR_LEFT:
            return f"; left as it is by {call.settled_by} at {words.clock(call.settled_at)}"
        case ChargeState.REFUND_FAILED if call.undo_failures:
            return f"; the {refund} failed {call.undo_failures} time{'s' * (call.undo_failures > 1)}"
        case ChargeState.REFUND_FAILED:
            return f"; the {refund} could not be made yet, for a service is down"
        case ChargeState.REFUND_UNCLEAR if undo:
            return f"; a {refund} was started at {words.clock(undo.begun_at)}, and its outcome is not known yet"
        case ChargeState.TO_BE_REFUNDED:
            return f"; it is to be {refunded}"
    return ""


def _how(undo: Effect | None, money: Money, private: Any) -> str:
    """Who refunded it, when, and under which reference. Lookups and people report it later than it happened."""
    if undo is None:
        return ""
    result, at = undo.result or {}, words.clock(undo.settled_at)
    found = result.get(money.refund) or result.get("reference")
    reference = f", {masked_reference(found, private)}" if found else ""
    match undo.settled_by:
        case "call":
            return f" at {at}{reference}"
        case "lookup":
            return f"{reference}, as the service said at {at}"
    return f" by hand{reference}, as {undo.settled_by} said at {at}"


def is_reversing(workflow: Workflow, definition: WorkflowDefinition | None) -> bool:
    """Whether the workflow's calls are being reversed. False while a person decides that."""
    return workflow.compensating and not undo_question.is_undecided(definition, workflow)


def in_short(definition: WorkflowDefinition | None, sum_charged: str, effects: Sequence[Effect]) -> str:
    """What became of the latest charge (of a held one, if any): `$145.00 charged`. Empty without a charge.

    `sum_charged` is a charge in words, empty if it is not known.
    """
    charges = judged(definition, effects, reversing=False)  # a charge to be refunded is charged, in short
    told = [each for each in charges if each.is_held] or [each for each in charges if each.state in _IN_SHORT]
    if not told or definition is None or not (money := definition.wording.money):
        return ""
    became = {**_IN_SHORT, ChargeState.REFUNDED: money.undo[1]}
    return f"{sum_charged or UNKNOWN} {became.get(told[-1].state, money.moved)}"


def of_rows(rows: Iterable[Any]) -> dict[int, str]:
    """`in_short` of the rows of a list with their `patient.amounts_of_charges`, by id: at most one statement."""
    known = {name: each for name, each in definitions().items() if each.wording.money}
    by_id = {row.pk: row for row in rows if row.workflow_type in known}
    steps = {step for each in known.values() for step in each.charge_names}
    effects: dict[int, list[Effect]] = defaultdict(list)
    if by_id:
        calls = Effect.objects.filter(workflow__in=by_id, step__in=steps).defer("error_message").order_by("id")
        for effect in calls:
            effects[effect.workflow_id].append(effect)
    return {
        pk: in_short(known[by_id[pk].workflow_type], amounts.known(*(by_id[pk].charges or (None, None))), found)
        for pk, found in effects.items()
    }


_IN_SHORT = {ChargeState.UNCLEAR: "unclear", ChargeState.UNCLEAR_LEFT: "unclear", ChargeState.REFUNDED: "refunded"}

"""CHARGES: what became of each call that takes money, and whether money is held. Every report on money uses this.

A definition's wording says which step charges, and which field of its result identifies the charge (`wording.Money`).
A call whose result leaves the field empty has charged nothing: a coupon, or a bill for later. A call without a result
may have charged.

The SQL below does the same for lists, on a ledger row `e` and its workflow `w`, with `JOIN` and `parameters()`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from workflows.definition import WorkflowDefinition, definitions, is_to_be_undone
from workflows.models import Effect, Workflow

State = Effect.State
# Values of `settled_by` that name no person.
_NOBODY = ("", "call", "lookup")


class ChargeState(StrEnum):
    """What became of a charge. Money is held in all states but NOTHING, NEVER and REFUNDED."""

    NOTHING = "nothing"  # not called, refused, or not found; or its result identifies no charge
    NEVER = "never"  # a person has said that nothing was charged
    UNCLEAR = "unclear"  # it may have been charged
    CHARGED = "charged"
    TO_BE_REFUNDED = "to_be_refunded"
    REFUND_FAILED = "refund_failed"  # it is tried again, or a person is asked
    REFUND_UNCLEAR = "refund_unclear"  # a refund was started, and its outcome is not known
    REFUNDED = "refunded"  # by us or by hand
    LEFT = "left"  # charged, and a person has left it as it is
    REFUND_UNCLEAR_LEFT = "refund_unclear_left"  # the same, and a refund was started whose outcome is not known
    UNCLEAR_LEFT = "unclear_left"  # may have been charged, and a person has left it as it is


_NOT_HELD = (ChargeState.NOTHING, ChargeState.NEVER, ChargeState.REFUNDED)


@dataclass(frozen=True, slots=True)
class Charge:
    """A call that charges, and the undo that gives the money back if that was started.

    `reference` identifies the charge; empty if it is not known. `is_reversible`: it is undone if the workflow fails; of
    a charge by hand a person is asked then.
    """

    call: Effect
    undo: Effect | None
    state: ChargeState
    reference: str
    is_reversible: bool

    @property
    def is_held(self) -> bool:
        """Whether money was taken, or may have been, and was not given back."""
        return self.state not in _NOT_HELD

    @property
    def is_unclear(self) -> bool:
        """Whether nobody knows if anything was charged."""
        return self.state in (ChargeState.UNCLEAR, ChargeState.UNCLEAR_LEFT)


def moves_money(definition: WorkflowDefinition | None, step: str) -> bool:
    """Whether this step's call may charge or pay out: of a type that this release does not know, any call may."""
    return definition is None or step in definition.charge_names


def charges_the_patient(definition: WorkflowDefinition | None, step: str) -> bool:
    """Whether this step's call may take the patient's money: not if the type pays people."""
    money = definition.wording.money if definition else None
    return moves_money(definition, step) and not (money and money.pays_out)


def charges_of(workflow: Workflow) -> list[Charge]:
    """The workflow's charges, oldest first; none if its type is unknown here or charges nothing. One statement."""
    definition = definitions().get(workflow.workflow_type)
    if definition is None or not definition.charge_names:
        return []
    calls = Effect.objects.filter(workflow=workflow.pk, step__in=definition.charge_names).order_by("pk")
    return judged(definition, calls.defer("error_message"), reversing=workflow.compensating)


def judged(definition: WorkflowDefinition | None, effects: Iterable[Effect], *, reversing: bool) -> list[Charge]:
    """The charges among a workflow's `effects`, in the same order. `reversing`: the workflow is being compensated."""
    if definition is None or not definition.charge_names:
        return []
    calls = [effect for effect in effects if effect.step in definition.charge_names]
    undos = {(effect.step, effect.generation): effect for effect in calls if effect.undo}
    return [
        _judge(definition, call, undos.get((call.step, call.generation)), reversing) for call in calls if not call.undo
    ]


def _judge(definition: WorkflowDefinition, call: Effect, undo: Effect | None, reversing: bool) -> Charge:
    assert definition.wording.money
    field, result = definition.wording.money.reference, call.result
    named = (result or {}).get(field)
    reference = "" if named is None else str(named)
    is_ours = call.state != State.KEPT and not call.by_hand
    is_reversible = is_ours and is_to_be_undone(definition, call.step, call.has_undo)
    state = ChargeState.NOTHING
    match call.state:
        case State.INTENT | State.UNKNOWN:
            state = ChargeState.UNCLEAR
        case State.NOT_DONE if call.settled_by not in _NOBODY:
            state = ChargeState.NEVER
        case State.DONE if reference:
            state = _of_done(call, undo, refunds=reversing and is_reversible)
        case State.DONE if result is None:
            state = ChargeState.UNCLEAR
        case State.KEPT if reference:
            state = ChargeState.REFUND_UNCLEAR_LEFT if _is_in_doubt(undo) else ChargeState.LEFT
        case State.KEPT if result is None:
            state = ChargeState.UNCLEAR_LEFT
        case State.UNDONE if reference or result is None:
            state = ChargeState.REFUNDED
    return Charge(call, undo, state, reference, is_reversible)


def _of_done(call: Effect, undo: Effect | None, *, refunds: bool) -> ChargeState:
    """The state of a charge that happened. A refund that was sent may have gone through, even if it failed often."""
    if _is_in_doubt(undo):
        return ChargeState.REFUND_UNCLEAR
    if call.undo_failures or call.undo_unavailable:
        return ChargeState.REFUND_FAILED
    return ChargeState.TO_BE_REFUNDED if refunds else ChargeState.CHARGED


def _is_in_doubt(undo: Effect | None) -> bool:
    return undo is not None and undo.state in (State.INTENT, State.UNKNOWN)


# --- The same in SQL ----------------------------------------------------------------------------------

JOIN = """LEFT JOIN unnest(%(types)s::text[], %(steps)s::text[], %(references)s::text[], %(reversible)s::bool[])
                     AS charge (type, step, reference, is_reversible)
             ON charge.type = w.workflow_type AND charge.step = e.step"""
# If this release does not know the type, any call may have charged.
_MAY_CHARGE = "NOT e.undo AND (charge.step IS NOT NULL OR w.workflow_type <> ALL (%(known)s::text[]))"
_IS_NAMED = "coalesce(e.result ->> charge.reference, '') <> ''"
_SAYS_NOTHING = "(e.result IS NULL OR charge.step IS NULL)"
_CHARGED = f"({_IS_NAMED} OR {_SAYS_NOTHING})"

UNCLEAR = f"""({_MAY_CHARGE} AND (e.state IN ('intent', 'unknown')
               OR e.state IN ('done', 'kept') AND NOT {_IS_NAMED} AND {_SAYS_NOTHING}))"""
HELD = f"({_MAY_CHARGE} AND (e.state IN ('intent', 'unknown') OR e.state IN ('done', 'kept') AND {_CHARGED}))"
REFUNDED = f"({_MAY_CHARGE} AND e.state = 'undone' AND {_CHARGED})"
# Somebody had said that it was charged by hand, and somebody that it was not: the patient may have paid all the same.
# A call that was made and refused, or not found, names who has settled it.
RETRACTED = f"({_MAY_CHARGE} AND e.state = 'not_done' AND e.settled_by = '')"
REVERSIBLE = "(e.state <> 'kept' AND e.by_hand = '' AND (e.has_undo OR coalesce(charge.is_reversible, false)))"

# A failed workflow that still holds money, or has a call that a person left as it is. Nothing may repeat it, and its
# ledger stays. No EXISTS: next to an OR, PostgreSQL would read the whole ledger for it.
LEFT = f"""(
    SELECT true FROM workflows_effect e {JOIN}
     WHERE e.workflow_id = w.id AND (e.state = 'kept' AND NOT e.undo OR {HELD}) LIMIT 1) IS NOT NULL"""  # noqa: S608 (ours)


def calls_of(rows: str) -> str:
    """SQL for the calls `e` that may be charges, of the workflows that a SELECT of id and workflow_type has.

    All at once, by the ids in order: to look each workflow up takes three times as many pages.
    """
    known = "workflow_type = ANY (%(known)s::text[])"
    return f"""SELECT * FROM workflows_effect WHERE step = ANY (%(steps)s::text[])
                  AND workflow_id = ANY (ARRAY(SELECT id FROM ({rows}) these WHERE {known}))
                UNION ALL
               SELECT * FROM workflows_effect
                WHERE workflow_id = ANY (ARRAY(SELECT id FROM ({rows}) these WHERE NOT {known}))"""  # noqa: S608 (ours)


def parameters(*of: WorkflowDefinition) -> dict[str, Any]:
    """SQL parameters: the charging steps of these definitions, or of all definitions of this release."""
    charges = [
        (definition.name, step, money.reference, is_to_be_undone(definition, step, False))
        for definition in of or definitions().values()
        if (money := definition.wording.money)
        for step in definition.charge_names
    ]
    names = ("types", "steps", "references", "reversible")
    columns = map(list, zip(*charges, strict=True)) if charges else ([] for _ in names)
    return {**dict(zip(names, columns, strict=True)), "known": list(definitions())}

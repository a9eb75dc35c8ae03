"""THE MONEY LINE of a workflow: what was charged, when, under which reference, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workflows.definition import WorkflowDefinition
from workflows.effects import DONE, IN_DOUBT, KEPT, UNDONE
from workflows.models import Effect
from workflows.operations.amounts import amount
from workflows.redaction import masked_reference, private_part
from workflows.telling import words
from workflows.wording import Money


def money_line(definition: WorkflowDefinition | None, payload: Mapping[str, Any], effects: Sequence[Effect]) -> str:
    """A sentence for each charge of `effects`, given oldest first; empty if the definition has no words for money."""
    if definition is None or definition.wording.money is None:
        return ""
    told = [charge.sentence() for charge in _charges(definition, payload, effects)]
    return " ".join(filter(None, told)) or "Nothing has been charged."


def in_short(definition: WorkflowDefinition | None, payload: Mapping[str, Any], effects: Sequence[Effect]) -> str:
    """What became of the latest charge, `$145.00 charged`; empty if there is none."""
    told = [charge.in_short() for charge in _charges(definition, payload, effects)] if definition else []
    return next(filter(None, reversed(told)), "")


def _charges(definition: WorkflowDefinition, payload: Mapping[str, Any], effects: Sequence[Effect]) -> list[_Charge]:
    if (money := definition.wording.money) is None:
        return []
    names = definition.charge_names
    calls = [effect for effect in effects if effect.step in names]
    undos = {effect.generation: effect for effect in calls if effect.undo}
    private = private_part(payload, definition.public_fields)
    return [
        _Charge(effect, undos.get(effect.generation), money, amount(payload, money), private)
        for effect in calls
        if not effect.undo
    ]


@dataclass(frozen=True, slots=True)
class _Charge:
    """One call that charges, and the call that gave it back; no reference may repeat `private`."""

    call: Effect
    undo: Effect | None
    money: Money
    amount: str
    private: Any

    def sentence(self) -> str:
        """What the call came to; empty for one that charged nothing."""
        call, reference = self.call, self._reference(self.call, self.money.reference)
        if call.state in IN_DOUBT:
            return f"Unclear: {self.amount} may have been charged at {words.clock(call.begun_at)}."
        if call.state not in (DONE, KEPT, UNDONE) or not reference:
            return ""
        # Its start: a lookup finds a call later than it was answered.
        return f"{self.amount} charged at {words.clock(call.begun_at)}, {reference}{self._since()}."

    def in_short(self) -> str:
        if self.call.state in IN_DOUBT:
            return f"{self.amount} unclear"
        if self.call.state not in (DONE, KEPT, UNDONE) or not self._reference(self.call, self.money.reference):
            return ""
        return f"{self.amount} {'refunded' if self.call.state == UNDONE else 'charged'}"

    def _since(self) -> str:
        """What became of it."""
        call, undo = self.call, self.undo
        if call.state == UNDONE:
            return f"; refunded {self._how()}"
        if call.state == KEPT:
            return "; a person decided to leave it"
        if call.undo_failures:
            return f"; the refund failed {call.undo_failures} time{'s' * (call.undo_failures > 1)}"
        if undo and undo.state in IN_DOUBT:
            return f"; a refund was started at {words.clock(undo.begun_at)}, and its outcome is not known yet"
        return ""

    def _how(self) -> str:
        if self.undo is None:
            return "by hand"
        reference = self._reference(self.undo, self.money.refund) or self._reference(self.undo, "reference")
        return f"at {words.clock(self.undo.settled_at)}{f', {reference}' if reference else ''}"

    def _reference(self, call: Effect, name: str) -> str:
        value = (call.result or {}).get(name)
        return masked_reference(value, self.private) if value else ""

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
    money = definition.wording.money if definition else None
    if definition is None or money is None:
        return ""
    names = definition.charge_names
    calls = [effect for effect in effects if effect.step in names]
    undos = {effect.generation: effect for effect in calls if effect.undo}
    private = private_part(payload, definition.public_fields)
    charges = [
        _Charge(effect, undos.get(effect.generation), money, amount(payload, money), private)
        for effect in calls
        if not effect.undo
    ]
    return " ".join(filter(None, (charge.sentence() for charge in charges))) or "Nothing has been charged."


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

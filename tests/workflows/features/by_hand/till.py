"""A card that is declined, the money that a person takes in its place, and the leads who say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User

from tests.engine import submit, work
from tests.workflows.operations import two
from workflows.definition import Brake, Step, WorkflowStep
from workflows.effects import KnownEffect, key_for
from workflows.errors import StepError
from workflows.features.by_hand import operations as by_hand
from workflows.models import Confirmation, Effect, Workflow
from workflows.operations import ended_at

RIGHTS = (*two.RIGHTS, "resolve_manualtask")
SAID: Mapping[str, Any] = {"reference": "pos-77", "result": {"number": 9}}


class Till:
    """What was asked of the bank, under which keys. It declines each charge until it is told otherwise."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.refunded: list[str] = []
        self.declines = True
        self.found: dict[str, Any] | None = None
        self.declines_looks = False

    def pay(self, *, workflow: Workflow, context: Any) -> dict[str, Any]:
        self.charged.append(key_for(workflow, "pay"))
        if self.declines:
            raise StepError("No.", code="declined")
        return {"number": len(self.charged)}

    def refund(self, *, workflow: Workflow, context: Any, effect: KnownEffect) -> dict[str, Any]:
        self.refunded.append(effect.undo_key)
        return {}

    def look(self, *, workflow: Workflow, context: Any, effect: KnownEffect) -> Mapping[str, Any] | None:
        if self.declines_looks:
            raise StepError("No.", code="no_answer")
        return self.found if effect.by_hand == "pos-77" else None

    def step(self, **policy: Any) -> Step:
        return Step(self.pay, **{"name": "pay", "once": True, "settle": 0, "returns": ("number",), **policy})

    def declined(self, *after: Step | WorkflowStep, two_people: bool = False, **policy: Any) -> Workflow:
        """A workflow that failed because the card was declined."""
        two.known(self.step(**policy), *after, two_people=two_people, brake=Brake(failures=0))
        row = work(submit({"cents": 14500, "currency": "USD"}))
        assert (row.status, row.last_error_code, len(self.charged)) == ("FAILED", "declined", 1)
        return row


def lead(name: str, *rights: str, **fields: Any) -> User:
    return two.lead(name, *(rights or RIGHTS), **fields)


def say(row: Workflow, user: User, **said: Any) -> str:
    row.refresh_from_db()
    return by_hand.say(row.pk, user=user, reason="Paid at the desk.", seen=ended_at(row), **{**SAID, **said})


def asked() -> list[int]:
    return list(Confirmation.objects.filter(state="asked").values_list("pk", flat=True))


def states() -> dict[str, str]:
    """Of each call, by its generation; those by hand with the reference."""
    rows = Effect.objects.order_by("generation", "undo", "pk")
    return {f"{'undo ' * e.undo}{e.step} {e.generation}": f"{e.state} {e.by_hand}".strip() for e in rows}

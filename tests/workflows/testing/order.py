"""A workflow as somebody writes one, and a shop that remembers what its steps have done there."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel

from workflows.definition import Step, WorkflowDefinition, WorkflowStep
from workflows.effects import KnownEffect, key_for
from workflows.errors import StepError
from workflows.models import Workflow
from workflows.waits import Child, require_approval, wait_for_children, wait_for_signal

PAYLOAD = {"sku": "A-1"}


class OrderContext(BaseModel):
    reservation: str | None = None
    approved_by: str | None = None
    charge: str | None = None
    parcel: str | None = None


class Shop:
    """The services behind: what was done, by key."""

    def __init__(self) -> None:
        self.done: dict[str, str] = {}

    def do(self, what: str, key: str) -> str:
        return self.done.setdefault(key, f"{what}-{len(self.done)}")


shop = Shop()


def check_order(*, workflow: Workflow, context: OrderContext) -> None:
    if "sku" not in workflow.payload:
        raise StepError("What is ordered?", code="no_sku")


def reserve(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    return {"reservation": shop.do("r", key_for(workflow, "reserve"))}


def release(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> None:
    assert context.reservation is not None
    shop.do("released", effect.undo_key)


def review(*, workflow: Workflow, context: OrderContext) -> dict[str, str] | None:
    if not workflow.payload.get("large"):
        return None
    return {"approved_by": require_approval(workflow, "review", question="Ok?", timeout=timedelta(1)).decided_by}


def charge(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    return {"charge": shop.do("c", key_for(workflow, "charge"))}


def find_charge(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> dict[str, str] | None:
    found = shop.done.get(effect.idempotency_key)
    return {"charge": found} if found else None


def refund(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> dict[str, str]:
    assert context.charge is not None
    return {"refund": shop.do("refund", effect.undo_key)}


def ship(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    return {"parcel": shop.do("p", key_for(workflow, "ship"))}


def thank(*, workflow: Workflow, context: OrderContext) -> None: ...


def pay(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    told = wait_for_signal(workflow, "payment", ["payment.failed", "payment.confirmed"], timeout=timedelta(minutes=15))
    return {"approved_by": told.payload["by"]}


STEPS = [
    check_order,
    Step(reserve, once=True, undo=release, key_ttl=timedelta(hours=1)),
    review,
    Step(charge, once=True, undo=refund, lookup=find_charge),
    Step(ship, once=True),
    Step(thank, best_effort=True),
]
ORDER = WorkflowDefinition(name="order", context_class=OrderContext, steps=STEPS)


def order_each(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    skus = workflow.payload["skus"]
    ended = wait_for_children(workflow, "orders", [Child("order", {"sku": sku}) for sku in skus], timeout=timedelta(1))
    return {"parcel": ", ".join(child.status for child in ended)}


ORDERS = WorkflowDefinition(name="orders", context_class=OrderContext, steps=[order_each])


def with_step(name: str, step: Step) -> WorkflowDefinition:
    steps = [step if old.name == name else old for old in ORDER.steps]
    return WorkflowDefinition(name="order", context_class=OrderContext, steps=steps)


def order_of(*steps: Step | WorkflowStep) -> WorkflowDefinition:
    return WorkflowDefinition(name="order", context_class=OrderContext, steps=steps)

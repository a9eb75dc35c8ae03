"""An order: reserve, charge, wait for the payment service's word, ship, confirm."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import BaseModel

from tests.scenarios import services
from workflows.before_undo import ask
from workflows.definition import Retry, Step, WorkflowDefinition
from workflows.effects import KnownEffect, key_for
from workflows.errors import StepError
from workflows.models import Workflow
from workflows.waits import wait_for_signal
from workflows.wording import CodeWords, Wording

# How long goods are kept for somebody whose bank has said neither yes nor no.
PAYMENT_TIMEOUT = timedelta(minutes=15)
# By then nearly all have said it: people are told, while the goods are still kept.
PAYMENT_DUE = timedelta(minutes=5)


class OrderContext(BaseModel):
    reservation_id: str | None = None  # reserve_inventory
    charge_id: str | None = None  # charge_payment
    paid_at: datetime | None = None  # await_payment
    parcel_id: str | None = None  # create_shipment


def reserve_inventory(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    key = key_for(workflow, "reserve_inventory")
    return {"reservation_id": services.request("reserve", workflow.payload["order"], idempotency_key=key)}


def find_reservation(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> dict[str, str] | None:
    reservation = services.find(effect.idempotency_key)
    return {"reservation_id": reservation} if reservation else None


def release_inventory(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> None:
    assert context.reservation_id
    services.request("release", workflow.payload["order"], idempotency_key=effect.undo_key)


def charge_payment(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    """Accepted is not paid: whether the money comes, the payment service tells later."""
    key = key_for(workflow, "charge_payment")
    return {"charge_id": services.request("charge", workflow.payload["order"], idempotency_key=key)}


def find_charge(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> dict[str, str] | None:
    charge = services.find(effect.idempotency_key)
    return {"charge_id": charge} if charge else None


def refund_payment(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> None:
    """A charge that was never paid is called off by the same request."""
    assert context.charge_id
    services.request("refund", workflow.payload["order"], idempotency_key=effect.undo_key)


def await_payment(*, workflow: Workflow, context: OrderContext) -> dict[str, datetime]:
    told = wait_for_signal(
        workflow,
        f"payment of {context.charge_id}",  # the wait's name: another charge is another wait
        ["payment.confirmed", "payment.failed"],  # whichever comes first
        matching={"charge_id": context.charge_id},  # the word on a charge that was refunded says nothing of this one
        due=PAYMENT_DUE,
        team="payments",
        timeout=PAYMENT_TIMEOUT,
        waiting_for="the payment service's word",
    )
    if told.name == "payment.failed":
        raise StepError("The payment has failed.", code="payment_failed")
    return {"paid_at": told.received_at}


def create_shipment(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    key = key_for(workflow, "create_shipment")
    order, address = workflow.payload["order"], workflow.payload["address"]
    return {"parcel_id": services.ship(order, address, idempotency_key=key)}


def find_shipment(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> dict[str, str] | None:
    parcel = services.find(effect.idempotency_key)
    return {"parcel_id": parcel} if parcel else None


def send_confirmation(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    key = key_for(workflow, "send_confirmation")
    services.request("confirm", workflow.payload["order"], idempotency_key=key)
    return {}


STEPS = [
    # What can be given back comes first, in the order in which it is to be given back last.
    Step(reserve_inventory, once=True, undo=release_inventory, lookup=find_reservation, returns=("reservation_id",)),
    Step(charge_payment, once=True, undo=refund_payment, lookup=find_charge, returns=("charge_id",)),
    await_payment,
    # A parcel on its way is not called back: nothing after it may fail the order.
    Step(
        create_shipment,
        once=True,
        lookup=find_shipment,
        retry=Retry(base_delay=300, max_attempts=12),
        returns=("parcel_id",),
    ),
    # Once, though it is the last: a worker may die when the mail is sent and before that is committed.
    Step(send_confirmation, best_effort=True, once=True, key_ttl=timedelta(days=1), returns=()),
]

CODES = {
    "no_such_address": CodeWords("The carrier does not go there.", "Our carrier does not deliver to your address."),
    "payment_failed": CodeWords("The payment has failed.", "Your payment did not go through. You can order again."),
}

ORDER_FULFILMENT = WorkflowDefinition(
    name="order_fulfilment",
    steps=STEPS,
    context_class=OrderContext,
    linking_id="order",  # what the payment service knows it by
    wording=Wording(codes=CODES),
    # Another carrier may go there: a person decides whether a paid order is called off.
    before_undo=ask("orders", when=("no_such_address",)),
)

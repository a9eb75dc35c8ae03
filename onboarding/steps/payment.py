"""The card, the bill, and the charge."""

from __future__ import annotations

from typing import Any

from onboarding.context import OnboardingContext
from onboarding.idempotency import key_for
from onboarding.payload import submission_of
from onboarding.services import payments
from workflows.models import Workflow


def attach_payment_card(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    card_id = payments.attach_card(
        context.patient,
        submission_of(workflow).payment.card_token,
        idempotency_key=key_for(workflow, "attach_payment_card"),
    )
    return {"payment_card_id": card_id}


def configure_billing(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    submission = submission_of(workflow)
    payments.configure_billing(
        context.patient,
        program=submission.checkout.program,
        plan=submission.checkout.plan,
        postal_code=submission.payment.billing_postal_code,
        idempotency_key=key_for(workflow, "configure_billing"),
    )
    return {}


def execute_checkout(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    """Charge the card. Without one the payment is due, which the dunning flow sees to, and nothing is charged."""
    idempotency_key = key_for(workflow, "execute_checkout")
    if context.payment_card_id is None:
        # The card may have been attached, and charged, in an earlier attempt: nobody who has paid goes to dunning.
        charge_id = payments.find_charge(idempotency_key)
        return {"charge_id": charge_id, "payment_status": "payment_due" if charge_id is None else "paid"}
    checkout = submission_of(workflow).checkout
    charge_id = payments.charge(
        context.patient,
        context.payment_card_id,
        amount_cents=checkout.amount_cents,
        currency=checkout.currency,
        idempotency_key=idempotency_key,
    )
    return {"charge_id": charge_id, "payment_status": "paid"}

"""The card, the bill, and the charge."""

from __future__ import annotations

from typing import Any

from onboarding.context import OnboardingContext
from onboarding.payload import submission_of
from onboarding.services import payments
from workflows.effects import KnownEffect, key_for
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
    """Charge the card. Without a card nothing is charged, and the dunning flow collects the payment."""
    if context.payment_card_id is None:
        return {"charge_id": None, "payment_status": "payment_due"}
    checkout = submission_of(workflow).checkout
    charge_id = payments.charge(
        context.patient,
        context.payment_card_id,
        amount_cents=checkout.amount_cents,
        currency=checkout.currency,
        idempotency_key=key_for(workflow, "execute_checkout"),
    )
    return {"charge_id": charge_id, "payment_status": "paid"}


def refund_checkout(*, workflow: Workflow, context: OnboardingContext, effect: KnownEffect) -> dict[str, Any] | None:
    """Refund what `execute_checkout` has charged, if anything."""
    if context.charge_id is None:
        return None
    return {"refund_id": payments.refund(context.charge_id, idempotency_key=effect.undo_key)}


def find_charge(*, workflow: Workflow, context: OnboardingContext, effect: KnownEffect) -> dict[str, Any] | None:
    """Whether `execute_checkout` has charged the card."""
    charge_id = payments.find_charge(effect.idempotency_key)
    return None if charge_id is None else {"charge_id": charge_id, "payment_status": "paid"}


def find_refund(*, workflow: Workflow, context: OnboardingContext, effect: KnownEffect) -> dict[str, Any] | None:
    """Whether the charge of `execute_checkout` is refunded, by us or by hand; or nothing was charged."""
    if context.charge_id is None:
        return {}
    amount_cents = submission_of(workflow).checkout.amount_cents
    refund_id = payments.find_refund(context.charge_id, amount_cents=amount_cents)
    return None if refund_id is None else {"refund_id": refund_id}

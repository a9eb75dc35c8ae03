"""Payments: cards, billing and charges."""

from __future__ import annotations

from uuid import UUID

from onboarding.services.http import Service, ServiceAnswer
from workflows.errors import StepError

payments = Service("payments")


class _Card(ServiceAnswer):
    card_id: str


class _Charge(ServiceAnswer):
    charge_id: str


class _Refund(ServiceAnswer):
    refund_id: str


class _FoundRefund(ServiceAnswer):
    refund_id: str
    charge_id: str
    amount_cents: int


class _Refunds(ServiceAnswer):
    refunds: list[_FoundRefund]


class _Charges(ServiceAnswer):
    charges: list[_Charge]


def attach_card(patient: UUID, card_token: str, *, idempotency_key: str) -> str:
    """Attach the card that the browser tokenised; return its id. Raises StepError `card_invalid` for a bad card."""
    return payments.change(
        "attach_card",
        "/cards",
        body={"patient_uuid": str(patient), "card_token": card_token},
        idempotency_key=idempotency_key,
        answer=_Card,
    ).card_id


def configure_billing(patient: UUID, *, program: str, plan: str, postal_code: str, idempotency_key: str) -> None:
    body = {"program": program, "plan": plan, "postal_code": postal_code}
    payments.put("configure_billing", f"/billing/{patient}", body=body, idempotency_key=idempotency_key)


def charge(patient: UUID, card_id: str, *, amount_cents: int, currency: str, idempotency_key: str) -> str:
    """Charge the card; return the charge's id. Raises StepError `card_declined` if the bank refuses."""
    return payments.change(
        "charge",
        "/charges",
        body={"patient_uuid": str(patient), "card_id": card_id, "amount_cents": amount_cents, "currency": currency},
        idempotency_key=idempotency_key,
        answer=_Charge,
    ).charge_id


def refund(charge_id: str, *, idempotency_key: str) -> str | None:
    """Refund all of a charge; return the refund's id, or None if it had been refunded before."""
    try:
        return payments.change(
            "refund", "/refunds", body={"charge_id": charge_id}, idempotency_key=idempotency_key, answer=_Refund
        ).refund_id
    except StepError as error:
        if error.code == "already_refunded":
            return None
        raise


def find_charge(idempotency_key: str) -> str | None:
    """The id of the charge that was made under a key; None if there is none."""
    found = payments.read("find_charge", "/charges", query={"idempotency_key": idempotency_key}, answer=_Charges)
    return found.charges[0].charge_id if found.charges else None


def find_refund(charge_id: str, *, amount_cents: int) -> str | None:
    """The id of the refund of all of a charge, made by us or by hand; None if there is none.

    If several make up the amount, returns the last. A partial refund is not enough. Skips refunds of other charges: a
    service may ignore a filter that it does not know.
    """
    found = payments.read("find_refund", "/refunds", query={"charge_id": charge_id}, answer=_Refunds)
    ours = [each for each in found.refunds if each.charge_id == charge_id]
    return ours[-1].refund_id if ours and sum(each.amount_cents for each in ours) >= amount_cents else None

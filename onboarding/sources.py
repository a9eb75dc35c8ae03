"""Events of onboarding's vendors that become signals, for `SIGNAL_SOURCES` (docs/api.md)."""

from __future__ import annotations

from workflows.ingress import cloudevents
from workflows.ingress.signal_sources import Event, SignalSource
from workflows.ingress.verifying import Bearer, Stripe

# The events that a step may wait for. Others are ignored.
_OF_PAYMENTS = {"payment_intent.succeeded": "payment.succeeded", "payment_intent.payment_failed": "payment.failed"}
_OF_IDENTITY = {"com.example.account.created": "account.created"}


def _intent(event: Event) -> dict[str, object]:
    """A signal's payload from Stripe's event: our step's payment intent, with the workflow's key in its metadata."""
    found: dict[str, object] = event.body["data"]["object"]
    return {"intent": found["id"], "status": found["status"]}


PAYMENTS = SignalSource(
    "payments",
    verify=Stripe(),
    id=lambda event: event.body["id"],
    signal=lambda event: _OF_PAYMENTS.get(event.body["type"]),
    workflow=lambda event: event.body["data"]["object"]["metadata"]["onramp_key"],
    payload=_intent,
)

IDENTITY = SignalSource(
    "identity",
    verify=Bearer(),
    read=cloudevents.read,
    id=cloudevents.id_of,
    signal=lambda event: _OF_IDENTITY.get(event.body["type"]),
    linking_id=lambda event: event.body["subject"],
)

"""Messages: what patients get from us, and through which channels."""

from __future__ import annotations

from uuid import UUID

from onboarding.services.http import Confirmation, Service

messages = Service("messages")


def set_communication_preferences(patient: UUID, *, sms: bool, email: bool, idempotency_key: str) -> None:
    messages.change(
        "set_communication_preferences",
        "PUT",
        f"/patients/{patient}/preferences",
        body={"sms": sms, "email": email},
        idempotency_key=idempotency_key,
        answer=Confirmation,
    )


def send_confirmation(patient: UUID, program: str, *, idempotency_key: str) -> None:
    messages.change(
        "send_confirmation",
        "POST",
        "/messages",
        body={"patient_uuid": str(patient), "template": "onboarding_confirmation", "program": program},
        idempotency_key=idempotency_key,
        answer=Confirmation,
    )

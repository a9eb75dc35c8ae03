"""Messages: what we send to patients, and through which channels."""

from __future__ import annotations

from uuid import UUID

from onboarding.payload import Preferences
from onboarding.services.http import Confirmation, Service

messages = Service("messages")


def set_communication_preferences(patient: UUID, preferences: Preferences, *, idempotency_key: str) -> None:
    path = f"/patients/{patient}/preferences"
    body = preferences.model_dump()
    messages.put("set_communication_preferences", path, body=body, idempotency_key=idempotency_key)


def send_confirmation(patient: UUID, program: str, *, idempotency_key: str) -> None:
    messages.change(
        "send_confirmation",
        "/messages",
        body={"patient_uuid": str(patient), "template": "onboarding_confirmation", "program": program},
        idempotency_key=idempotency_key,
        answer=Confirmation,
    )

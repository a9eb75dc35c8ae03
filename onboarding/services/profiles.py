"""Profiles: what patients say about themselves. Needs the patient's token."""

from __future__ import annotations

from uuid import UUID

from onboarding.payload import Address, Patient
from onboarding.services.http import Service

profiles = Service("profiles")

PERSONAL_INFORMATION = {"first_name", "last_name", "date_of_birth", "sex"}


def update_personal_information(patient: UUID, told: Patient, *, token: str, idempotency_key: str) -> None:
    path = f"/patients/{patient}/personal-information"
    body = told.model_dump(mode="json", include=PERSONAL_INFORMATION)
    profiles.put("update_personal_information", path, body=body, token=token, idempotency_key=idempotency_key)


def update_phone_number(patient: UUID, phone: str, *, token: str, idempotency_key: str) -> None:
    path = f"/patients/{patient}/phone"
    profiles.put("update_phone_number", path, body={"phone": phone}, token=token, idempotency_key=idempotency_key)


def update_address(patient: UUID, address: Address, *, token: str, idempotency_key: str) -> None:
    path = f"/patients/{patient}/address"
    profiles.put("update_address", path, body=address.model_dump(), token=token, idempotency_key=idempotency_key)

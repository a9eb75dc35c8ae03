"""Profiles: what patients say about themselves. Asks for the patient's token."""

from __future__ import annotations

from datetime import date
from typing import Any
from uuid import UUID

from onboarding.services.http import Confirmation, Service

profiles = Service("profiles")


def update_personal_information(
    patient: UUID,
    *,
    first_name: str,
    last_name: str,
    date_of_birth: date,
    sex: str,
    token: str,
    idempotency_key: str,
) -> None:
    body = {
        "first_name": first_name,
        "last_name": last_name,
        "date_of_birth": date_of_birth.isoformat(),
        "sex": sex,
    }
    _save("update_personal_information", f"/patients/{patient}/personal-information", body, token, idempotency_key)


def update_phone_number(patient: UUID, phone: str, *, token: str, idempotency_key: str) -> None:
    _save("update_phone_number", f"/patients/{patient}/phone", {"phone": phone}, token, idempotency_key)


def update_address(
    patient: UUID,
    *,
    line1: str,
    line2: str | None,
    city: str,
    state: str,
    postal_code: str,
    token: str,
    idempotency_key: str,
) -> None:
    body = {"line1": line1, "line2": line2, "city": city, "state": state, "postal_code": postal_code}
    _save("update_address", f"/patients/{patient}/address", body, token, idempotency_key)


def _save(operation: str, path: str, body: dict[str, Any], token: str, idempotency_key: str) -> None:
    profiles.change(
        operation, "PUT", path, body=body, token=token, idempotency_key=idempotency_key, answer=Confirmation
    )

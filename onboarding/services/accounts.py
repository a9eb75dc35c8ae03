"""Accounts: the patients' identities."""

from __future__ import annotations

from uuid import UUID

from onboarding.payload import NewPatient
from onboarding.services.http import Service, ServiceAnswer

accounts = Service("accounts")
# A circuit of its own, because no account waits for it.
identity = Service("accounts", circuit="identity link")


class Account(ServiceAnswer):
    patient_uuid: UUID
    reference: str | None = None  # from the client that created it: ours is the workflow's key


class _Found(ServiceAnswer):
    accounts: list[Account]


def find_by_email(email: str) -> Account | None:
    return _find({"email": email})


def find_by_linking_id(linking_id: str) -> Account | None:
    return _find({"linking_id": linking_id})


def create(patient: NewPatient, *, reference: str, idempotency_key: str) -> Account:
    return accounts.change(
        "create_account",
        "/accounts",
        body={
            "email": patient.email,
            "password": patient.password.get_secret_value(),
            "first_name": patient.first_name,
            "last_name": patient.last_name,
            "reference": reference,
        },
        idempotency_key=idempotency_key,
        answer=Account,
    )


def link_identity_verification(patient: UUID, verification_id: str, *, idempotency_key: str) -> None:
    identity.put(
        "link_identity_verification",
        f"/accounts/{patient}/identity-verification",
        body={"verification_id": verification_id},
        idempotency_key=idempotency_key,
    )


def _find(criterion: dict[str, str]) -> Account | None:
    found = accounts.read("find_account", "/accounts/search", body=criterion, answer=_Found).accounts
    return found[0] if found else None

"""Accounts: the patients' identities."""

from __future__ import annotations

from uuid import UUID

from onboarding.services.http import Confirmation, Service, ServiceAnswer

accounts = Service("accounts")
# Nobody's account waits for it.
identity = Service("accounts", circuit="identity link")


class Account(ServiceAnswer):
    patient_uuid: UUID
    reference: str | None = None  # given by the client that created it: for us the workflow's key


class _Found(ServiceAnswer):
    accounts: list[Account]


def find_by_email(email: str) -> Account | None:
    return _find({"email": email})


def find_by_linking_id(linking_id: str) -> Account | None:
    return _find({"linking_id": linking_id})


def create(
    *, email: str, password: str, first_name: str, last_name: str, reference: str, idempotency_key: str
) -> Account:
    return accounts.change(
        "create_account",
        "POST",
        "/accounts",
        body={
            "email": email,
            "password": password,
            "first_name": first_name,
            "last_name": last_name,
            "reference": reference,
        },
        idempotency_key=idempotency_key,
        answer=Account,
    )


def link_identity_verification(patient: UUID, verification_id: str, *, idempotency_key: str) -> None:
    identity.change(
        "link_identity_verification",
        "PUT",
        f"/accounts/{patient}/identity-verification",
        body={"verification_id": verification_id},
        idempotency_key=idempotency_key,
        answer=Confirmation,
    )


def _find(criterion: dict[str, str]) -> Account | None:
    found = accounts.read("find_account", "/accounts/search", body=criterion, answer=_Found).accounts
    return found[0] if found else None

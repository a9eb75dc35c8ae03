"""Tokens: they open a patient's own records. They expire, so each attempt gets its own, and none is ever stored."""

from __future__ import annotations

from uuid import UUID

from pydantic import SecretStr

from onboarding.services.http import Service, ServiceAnswer

tokens = Service("tokens")


class Token(ServiceAnswer):
    patient_uuid: UUID
    access_token: SecretStr


def exchange(session_token: str) -> Token:
    """Exchange the session of a signed-in patient for a token. It changes nothing, so it can be repeated."""
    return tokens.read("exchange_session", "/exchange", body={"session_token": session_token}, answer=Token)


def issue(patient: UUID) -> Token:
    """Get a token for a patient on our own authority, once the account is settled."""
    return tokens.read("issue_token", "/issue", body={"patient_uuid": str(patient)}, answer=Token)

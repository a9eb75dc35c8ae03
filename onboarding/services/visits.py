"""Visits: the online visit, and the answers that a clinician reads. Needs the patient's token."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from onboarding.services.http import Service, ServiceAnswer

visits = Service("visits")


class _Visit(ServiceAnswer):
    visit_uuid: UUID


def start(patient: UUID, program: str, *, token: str, idempotency_key: str) -> UUID:
    """Start a visit and return its id."""
    return visits.change(
        "start_visit",
        "/visits",
        body={"patient_uuid": str(patient), "program": program},
        token=token,
        idempotency_key=idempotency_key,
        answer=_Visit,
    ).visit_uuid


def save_questionnaire(visit: UUID, answers: dict[str, Any], *, token: str, idempotency_key: str) -> None:
    path = f"/visits/{visit}/questionnaire"
    visits.put("save_questionnaire", path, body={"answers": answers}, token=token, idempotency_key=idempotency_key)

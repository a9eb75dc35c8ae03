"""Programs: who takes part in which."""

from __future__ import annotations

from uuid import UUID

from onboarding.services.http import Answer, Service

programs = Service("programs")


class _Enrollment(Answer):
    enrollment_id: str


def enroll(patient: UUID, visit: UUID, *, program: str, plan: str, payment_status: str, idempotency_key: str) -> str:
    """Enrol a patient and return the enrolment's id."""
    return programs.change(
        "enroll",
        "POST",
        "/enrollments",
        body={
            "patient_uuid": str(patient),
            "visit_uuid": str(visit),
            "program": program,
            "plan": plan,
            "payment_status": payment_status,
        },
        idempotency_key=idempotency_key,
        answer=_Enrollment,
    ).enrollment_id

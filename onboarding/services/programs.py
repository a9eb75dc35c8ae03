"""Programs: enrolling patients, and withdrawing them."""

from __future__ import annotations

from uuid import UUID

from onboarding.payload import Checkout
from onboarding.services.http import Service, ServiceAnswer
from workflows.errors import StepError

programs = Service("programs")


class _Enrollment(ServiceAnswer):
    enrollment_id: str


class _Enrollments(ServiceAnswer):
    enrollments: list[_Enrollment]


class _Withdrawals(ServiceAnswer):
    withdrawals: list[_Enrollment]


def enroll(patient: UUID, visit: UUID, checkout: Checkout, *, payment_status: str, idempotency_key: str) -> str:
    """Enrol a patient and return the enrolment's id."""
    return programs.change(
        "enroll",
        "/enrollments",
        body={
            "patient_uuid": str(patient),
            "visit_uuid": str(visit),
            "program": checkout.program,
            "plan": checkout.plan,
            "payment_status": payment_status,
        },
        idempotency_key=idempotency_key,
        answer=_Enrollment,
    ).enrollment_id


def withdraw(enrollment_id: str, *, idempotency_key: str) -> None:
    """End an enrolment; an ended one stays so."""
    try:
        programs.change(
            "withdraw",
            "/withdrawals",
            body={"enrollment_id": enrollment_id},
            idempotency_key=idempotency_key,
            answer=_Enrollment,
        )
    except StepError as error:
        if error.code != "already_withdrawn":
            raise


def find_enrollment(idempotency_key: str) -> str | None:
    """The id of the enrolment that was made under a key; None if there is none."""
    found = programs.read(
        "find_enrollment", "/enrollments", query={"idempotency_key": idempotency_key}, answer=_Enrollments
    )
    return found.enrollments[0].enrollment_id if found.enrollments else None


def has_ended(enrollment_id: str) -> bool:
    """Whether an enrolment has been ended, by us or by hand."""
    query = {"enrollment_id": enrollment_id}
    found = programs.read("find_withdrawal", "/withdrawals", query=query, answer=_Withdrawals)
    return any(each.enrollment_id == enrollment_id for each in found.withdrawals)

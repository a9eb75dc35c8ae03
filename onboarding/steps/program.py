"""The program that the patient joins."""

from __future__ import annotations

from typing import Any

from onboarding.context import OnboardingContext
from onboarding.payload import submission_of
from onboarding.services import programs
from workflows.effects import KnownEffect, key_for
from workflows.models import Workflow


def enroll_in_program(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    enrollment_id = programs.enroll(
        context.patient,
        context.visit,
        submission_of(workflow).checkout,
        payment_status=context.payment_status or "payment_due",
        idempotency_key=key_for(workflow, "enroll_in_program"),
    )
    return {"enrollment_id": enrollment_id}


def withdraw_from_program(
    *, workflow: Workflow, context: OnboardingContext, effect: KnownEffect
) -> dict[str, Any] | None:
    """End the enrolment of `enroll_in_program`."""
    if context.enrollment_id is None:
        return None
    programs.withdraw(context.enrollment_id, idempotency_key=effect.undo_key)
    return {"enrollment_id": context.enrollment_id}


def find_enrollment(*, workflow: Workflow, context: OnboardingContext, effect: KnownEffect) -> dict[str, Any] | None:
    """Whether `enroll_in_program` has enrolled the patient."""
    enrollment_id = programs.find_enrollment(effect.idempotency_key)
    return None if enrollment_id is None else {"enrollment_id": enrollment_id}


def find_withdrawal(*, workflow: Workflow, context: OnboardingContext, effect: KnownEffect) -> dict[str, Any] | None:
    """Whether the enrolment of `enroll_in_program` has ended: by us, or by hand."""
    if context.enrollment_id is None:
        return {}
    return {"enrollment_id": context.enrollment_id} if programs.has_ended(context.enrollment_id) else None

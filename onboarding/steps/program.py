"""The program the patient joins."""

from __future__ import annotations

from typing import Any

from onboarding.context import OnboardingContext
from onboarding.idempotency import key_for
from onboarding.payload import submission_of
from onboarding.services import programs
from workflows.models import Workflow


def enroll_in_program(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    checkout = submission_of(workflow).checkout
    enrollment_id = programs.enroll(
        context.patient,
        context.visit,
        program=checkout.program,
        plan=checkout.plan,
        payment_status=context.payment_status or "payment_due",
        idempotency_key=key_for(workflow, "enroll_in_program"),
    )
    return {"enrollment_id": enrollment_id}

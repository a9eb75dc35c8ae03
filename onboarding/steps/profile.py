"""What the patient says about themself."""

from __future__ import annotations

from typing import Any

from onboarding.context import OnboardingContext
from onboarding.payload import submission_of
from onboarding.services import profiles
from workflows.effects import key_for
from workflows.models import Workflow


def update_personal_information(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    patient = submission_of(workflow).patient
    profiles.update_personal_information(
        context.patient,
        first_name=patient.first_name,
        last_name=patient.last_name,
        date_of_birth=patient.date_of_birth,
        sex=patient.sex,
        token=context.token,
        idempotency_key=key_for(workflow, "update_personal_information"),
    )
    return {}


def update_phone_number(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    profiles.update_phone_number(
        context.patient,
        submission_of(workflow).patient.phone,
        token=context.token,
        idempotency_key=key_for(workflow, "update_phone_number"),
    )
    return {}


def update_address(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    address = submission_of(workflow).address
    profiles.update_address(
        context.patient,
        line1=address.line1,
        line2=address.line2,
        city=address.city,
        state=address.state,
        postal_code=address.postal_code,
        token=context.token,
        idempotency_key=key_for(workflow, "update_address"),
    )
    return {}

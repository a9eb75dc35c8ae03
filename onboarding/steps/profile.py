"""What the patient says about themself."""

from __future__ import annotations

from typing import Any

from onboarding.context import OnboardingContext
from onboarding.payload import submission_of
from onboarding.services import profiles
from workflows.effects import key_for
from workflows.models import Workflow


def update_personal_information(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    profiles.update_personal_information(
        context.patient,
        submission_of(workflow).patient,
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
    profiles.update_address(
        context.patient,
        submission_of(workflow).address,
        token=context.token,
        idempotency_key=key_for(workflow, "update_address"),
    )
    return {}

"""What we send to the patient."""

from __future__ import annotations

from typing import Any

from onboarding.context import OnboardingContext
from onboarding.payload import submission_of
from onboarding.services import messages
from workflows.effects import key_for
from workflows.models import Workflow


def set_communication_preferences(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    preferences = submission_of(workflow).preferences
    if preferences is None:
        return None
    messages.set_communication_preferences(
        context.patient, preferences, idempotency_key=key_for(workflow, "set_communication_preferences")
    )
    return {}


def send_confirmation(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    messages.send_confirmation(
        context.patient,
        submission_of(workflow).checkout.program,
        idempotency_key=key_for(workflow, "send_confirmation"),
    )
    return {}

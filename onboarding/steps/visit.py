"""The online visit, and the answers that the patient gives in it."""

from __future__ import annotations

from typing import Any

from onboarding.context import OnboardingContext
from onboarding.payload import submission_of
from onboarding.services import visits
from workflows.effects import key_for
from workflows.models import Workflow


def start_visit(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    visit = visits.start(
        context.patient,
        submission_of(workflow).checkout.program,
        token=context.token,
        idempotency_key=key_for(workflow, "start_visit"),
    )
    return {"visit_uuid": str(visit)}


def save_questionnaire(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    visits.save_questionnaire(
        context.visit,
        submission_of(workflow).questionnaire.answers.model_dump(mode="json"),
        token=context.token,
        idempotency_key=key_for(workflow, "save_questionnaire"),
    )
    return {}

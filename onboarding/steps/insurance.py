"""The patient's insurance, if they have one."""

from __future__ import annotations

from typing import Any

from onboarding.context import OnboardingContext
from onboarding.payload import submission_of
from onboarding.services import insurance
from workflows.effects import key_for
from workflows.models import Workflow


def save_insurance(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    policy = submission_of(workflow).insurance
    if policy is None:
        return None
    insurance.save(context.patient, policy, idempotency_key=key_for(workflow, "save_insurance"))
    return {}


def verify_insurance(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    submission = submission_of(workflow)
    if submission.insurance is None:
        return None
    insurance.verify(
        context.patient, submission.checkout.program, idempotency_key=key_for(workflow, "verify_insurance")
    )
    return {"insurance_verified": True}

"""The steps that change something: a second run changes nothing more, and one that does not apply nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr

from onboarding.context import OnboardingContext
from onboarding.samples import Kind, sample
from onboarding.services import tokens, visits
from onboarding.steps import account, insurance, messages, payment, profile, program, visit
from tests.sandbox_process import SandboxProcess
from workflows.models import Workflow

CHOICES = {
    "insurance": {"payer": "Acme Health", "member_id": "M1", "group_number": None},
    "preferences": {"sms": True, "email": True},
    "identity_verification_id": "idv_1",
}


@pytest.mark.parametrize(
    ("step", "effect", "adds"),
    [
        (visit.start_visit, ("visits", "start_visit"), {"visit_uuid"}),
        (profile.update_personal_information, ("profiles", "update_personal_information"), set()),
        (profile.update_phone_number, ("profiles", "update_phone_number"), set()),
        (profile.update_address, ("profiles", "update_address"), set()),
        (insurance.save_insurance, ("insurance", "save_insurance"), set()),
        (visit.save_questionnaire, ("visits", "save_questionnaire"), set()),
        (payment.attach_payment_card, ("payments", "attach_card"), {"payment_card_id"}),
        (payment.configure_billing, ("payments", "configure_billing"), set()),
        (messages.set_communication_preferences, ("messages", "set_communication_preferences"), set()),
        (account.link_identity_verification, ("accounts", "link_identity_verification"), set()),
        (program.enroll_in_program, ("programs", "enroll"), {"enrollment_id"}),
        (messages.send_confirmation, ("messages", "send_confirmation"), set()),
    ],
)
def test_it_has_its_one_effect_once_however_often_it_runs(
    step: Callable[..., Any], effect: tuple[str, str], adds: set[str], sandbox: SandboxProcess
) -> None:
    workflow = Workflow(idempotency_key=uuid4(), payload=sample(Kind.NET_NEW).payload | CHOICES)
    context = in_mid_list(workflow, sandbox)
    first = step(workflow=workflow, context=context)
    assert first.keys() == adds
    assert step(workflow=workflow, context=context) == first
    assert sandbox.effects_of(workflow.key) == [effect]
    [performed] = [e for e in sandbox.effects() if e["idempotency_key"].startswith(f"{workflow.key}:")]
    assert performed["idempotency_key"] == f"{workflow.key}:{step.__name__}"
    assert performed["patient_uuid"] == str(context.patient)


def in_mid_list(workflow: Workflow, sandbox: SandboxProcess) -> OnboardingContext:
    """What a step finds there: its patient has an account, a token and a visit."""
    patient = sandbox.account(email=f"{workflow.key}@example.com")["patient_uuid"]
    token = tokens.issue(patient).access_token.get_secret_value()  # type: ignore[arg-type]
    context = OnboardingContext(patient_uuid=patient, access_token=SecretStr(token))  # type: ignore[arg-type]
    context.visit_uuid = visits.start(context.patient, "body", token=token, idempotency_key=workflow.key)
    return context


@pytest.mark.parametrize(
    "step",
    [
        *(insurance.save_insurance, insurance.verify_insurance),
        *(messages.set_communication_preferences, account.link_identity_verification),
    ],
)
def test_it_does_not_apply_without_what_it_is_about(step: Callable[..., Any]) -> None:
    workflow = Workflow(idempotency_key=uuid4(), payload=sample(Kind.NET_NEW).payload | dict.fromkeys(CHOICES))
    assert step(workflow=workflow, context=OnboardingContext()) is None

"""The steps that every type runs: what each changes downstream, and that a second run changes nothing more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onboarding.samples import Kind
from onboarding.steps import insurance, messages, payment, profile, program, visit
from tests.onboarding.steps.conftest import Prepare
from tests.sandbox_process import SandboxProcess
from workflows.errors import StepError

POLICY = {"payer": "Acme Health", "member_id": "M1", "group_number": None}
CHOICES = {"insurance": POLICY, "preferences": {"sms": True, "email": True}}


@pytest.mark.parametrize("kind", [Kind.NET_NEW, Kind.EXISTING, Kind.LINKED])
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
        (program.enroll_in_program, ("programs", "enroll"), {"enrollment_id"}),
        (messages.send_confirmation, ("messages", "send_confirmation"), set()),
    ],
)
def test_it_has_its_one_effect_once_however_often_it_runs(
    kind: Kind,
    step: Callable[..., Any],
    effect: tuple[str, str],
    adds: set[str],
    sandbox: SandboxProcess,
    prepare: Prepare,
) -> None:
    workflow, context = prepare(kind, **CHOICES)
    first = step(workflow=workflow, context=context)
    assert first.keys() == adds
    assert step(workflow=workflow, context=context) == first
    assert sandbox.effects_of(workflow.key) == [effect]
    [performed] = [e for e in sandbox.effects() if e["idempotency_key"].startswith(f"{workflow.key}:")]
    assert performed["idempotency_key"] == f"{workflow.key}:{step.__name__}"
    assert performed["patient_uuid"] == str(context.patient)


@pytest.mark.parametrize(
    ("step", "absent"),
    [
        (insurance.save_insurance, "insurance"),
        (insurance.verify_insurance, "insurance"),
        (messages.set_communication_preferences, "preferences"),
    ],
)
def test_it_does_not_apply_without_what_it_is_about(
    step: Callable[..., Any], absent: str, sandbox: SandboxProcess, prepare: Prepare
) -> None:
    workflow, context = prepare(**CHOICES | {absent: None})
    assert step(workflow=workflow, context=context) is None
    assert sandbox.effects_of(workflow.key) == []


def test_insurance_is_verified_once_it_is_saved(sandbox: SandboxProcess, prepare: Prepare) -> None:
    workflow, context = prepare(**CHOICES)
    insurance.save_insurance(workflow=workflow, context=context)
    assert insurance.verify_insurance(workflow=workflow, context=context) == {"insurance_verified": True}


def test_insurance_that_does_not_cover_the_program_is_an_error_of_its_own(prepare: Prepare) -> None:
    workflow, context = prepare(insurance=POLICY | {"member_id": "INELIGIBLE1"})
    insurance.save_insurance(workflow=workflow, context=context)
    with pytest.raises(StepError) as error:
        insurance.verify_insurance(workflow=workflow, context=context)
    assert error.value.code == "insurance_not_eligible"
    assert "INELIGIBLE1" not in str(error.value)

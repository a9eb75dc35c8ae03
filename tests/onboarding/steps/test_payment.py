from __future__ import annotations

import pytest

from onboarding.samples import Kind
from onboarding.steps import payment
from onboarding.steps.program import enroll_in_program
from tests.onboarding.steps.conftest import Prepare
from tests.sandbox_process import SandboxProcess
from workflows.effects import KnownEffect, key_for
from workflows.errors import StepError, UnknownOutcome


@pytest.mark.parametrize("kind", [Kind.NET_NEW, Kind.EXISTING, Kind.LINKED])
def test_checkout_charges_the_attached_card_once(kind: Kind, sandbox: SandboxProcess, prepare: Prepare) -> None:
    workflow, context = prepare(kind)
    context.payment_card_id = (payment.attach_payment_card(workflow=workflow, context=context) or {})["payment_card_id"]
    first = payment.execute_checkout(workflow=workflow, context=context)
    assert first is not None
    assert first["payment_status"] == "paid"
    assert payment.execute_checkout(workflow=workflow, context=context) == first
    assert sandbox.effects_of(workflow.key) == [("payments", "attach_card"), ("payments", "charge")]


def test_without_a_card_nothing_is_charged_and_the_payment_is_due(sandbox: SandboxProcess, prepare: Prepare) -> None:
    workflow, context = prepare(Kind.CARD_INVALID)
    with pytest.raises(StepError) as error:
        payment.attach_payment_card(workflow=workflow, context=context)
    assert error.value.code == "card_invalid"
    result = payment.execute_checkout(workflow=workflow, context=context)
    assert result == {"charge_id": None, "payment_status": "payment_due"}
    context.payment_status = "payment_due"
    enroll_in_program(workflow=workflow, context=context)
    assert sandbox.effects_of(workflow.key) == [("programs", "enroll")]


def test_the_lookup_tells_who_has_paid(sandbox: SandboxProcess, prepare: Prepare) -> None:
    workflow, context = prepare()
    key = key_for(workflow, "execute_checkout")
    effect = KnownEffect(1, "execute_checkout", 1, "unknown", key, None, key_age=0, call_age=0)
    assert payment.find_charge(workflow=workflow, context=context, effect=effect) is None
    context.payment_card_id = (payment.attach_payment_card(workflow=workflow, context=context) or {})["payment_card_id"]
    paid = payment.execute_checkout(workflow=workflow, context=context)
    assert payment.find_charge(workflow=workflow, context=context, effect=effect) == paid


def test_a_declined_card_is_a_failure_for_good(sandbox: SandboxProcess, prepare: Prepare) -> None:
    workflow, context = prepare(Kind.CARD_DECLINED)
    context.payment_card_id = (payment.attach_payment_card(workflow=workflow, context=context) or {})["payment_card_id"]
    with pytest.raises(StepError) as error:
        payment.execute_checkout(workflow=workflow, context=context)
    assert error.value.code == "card_declined"
    assert workflow.payload["payment"]["card_token"] not in str(error.value)


@pytest.mark.parametrize("kind", ["drop_after", "half"])
def test_a_charge_whose_answer_was_lost_is_not_made_twice(sandbox: SandboxProcess, prepare: Prepare, kind: str) -> None:
    workflow, context = prepare()
    context.payment_card_id = (payment.attach_payment_card(workflow=workflow, context=context) or {})["payment_card_id"]
    sandbox.fault("payments", "charge", kind, count=1)
    with pytest.raises(UnknownOutcome):
        payment.execute_checkout(workflow=workflow, context=context)
    result = payment.execute_checkout(workflow=workflow, context=context)
    assert result is not None
    assert result["payment_status"] == "paid"
    assert sandbox.effects_of(workflow.key).count(("payments", "charge")) == 1

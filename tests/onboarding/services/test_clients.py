"""Each client against the sandbox: what it sends is understood, and what comes back is what it promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from onboarding.services import payments, profiles, programs, tokens, visits
from onboarding.services.http import Service
from tests.sandbox_process import SandboxProcess
from workflows.errors import StepError


@pytest.fixture
def email() -> str:
    return f"{uuid4()}@example.com"


@pytest.fixture
def patient(sandbox: SandboxProcess, email: str) -> UUID:
    return UUID(sandbox.account(email=email, session_token=f"session_{email}")["patient_uuid"])


@pytest.fixture
def token(patient: UUID) -> str:
    return tokens.issue(patient).access_token.get_secret_value()


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(StepError) as error:
        call()
    return error.value.code


# --- accounts ------------------------------------------------------------------------------------


# --- tokens --------------------------------------------------------------------------------------


def test_no_token_is_issued_for_a_patient_that_nobody_knows(sandbox: SandboxProcess) -> None:
    assert refusal(lambda: tokens.issue(uuid4())) == "unknown_patient"


# --- profiles, visits ----------------------------------------------------------------------------


def test_profiles_and_visits_ask_for_the_patients_own_token(sandbox: SandboxProcess, patient: UUID, token: str) -> None:
    other = UUID(sandbox.account(email=f"{uuid4()}@example.com")["patient_uuid"])

    def update(whose: UUID, token: str) -> Callable[[], object]:
        return lambda: profiles.update_phone_number(whose, "+12025550123", token=token, idempotency_key=str(uuid4()))

    assert refusal(update(patient, "")) == "token_invalid"
    assert refusal(update(patient, f"{token}x")) == "token_invalid"
    assert refusal(update(other, token)) == "another_patient"
    assert refusal(lambda: visits.start(other, "body", token=token, idempotency_key=str(uuid4()))) == "another_patient"


# --- insurance -----------------------------------------------------------------------------------


# --- payments, programs, messages ----------------------------------------------------------------


def charge(patient: UUID, card: str, key: str, cents: int = 14500) -> str:
    return payments.charge(patient, card, amount_cents=cents, currency="usd", idempotency_key=key)


def test_a_card_is_attached_and_charged_once_and_the_charge_is_found_by_its_key(
    sandbox: SandboxProcess, patient: UUID
) -> None:
    key = str(uuid4())
    card = payments.attach_card(patient, "tok_visa", idempotency_key=str(uuid4()))
    assert payments.find_charge(key) is None
    charged = charge(patient, card, key)
    assert charge(patient, card, key) == charged
    assert payments.find_charge(key) == charged
    assert len(sandbox.effects(idempotency_key=key)) == 1


def test_what_was_given_back_is_found_whoever_did_it(patient: UUID) -> None:
    charged = charge(patient, payments.attach_card(patient, "tok_visa", idempotency_key=str(uuid4())), str(uuid4()))
    assert payments.find_refund(charged, amount_cents=14500) is None
    refunded = payments.refund(charged, idempotency_key=str(uuid4()))
    assert payments.find_refund(charged, amount_cents=14500) == refunded
    assert payments.refund(charged, idempotency_key=str(uuid4())) is None, "it had been given back before"


def test_a_part_of_a_charge_is_not_all_of_it(sandbox: SandboxProcess, patient: UUID) -> None:
    """A goodwill refund of five dollars, by hand, must not pass for the refund that is due."""
    charged = charge(patient, payments.attach_card(patient, "tok_visa", idempotency_key=str(uuid4())), str(uuid4()))
    goodwill = httpx.post(
        f"{sandbox.url}/payments/refunds",
        json={"charge_id": charged, "amount_cents": 500},
        headers={"Idempotency-Key": str(uuid4())},
    )
    assert goodwill.status_code == 201
    assert payments.find_refund(charged, amount_cents=14500) is None
    rest = payments.refund(charged, idempotency_key=str(uuid4()))
    assert payments.find_refund(charged, amount_cents=14500) == rest


def unfiltered(monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]) -> None:
    """Let every service answer each question with this, whatever it was asked for."""
    monkeypatch.setattr(Service, "read", lambda *_, answer, **__: answer.model_validate(body))


def test_the_refund_of_another_charge_gives_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    unfiltered(monkeypatch, {"refunds": [{"refund_id": "re_1", "charge_id": "ch_1", "amount_cents": 500}]})
    found = [payments.find_refund(charge_id, amount_cents=500) for charge_id in ("ch_1", "ch_2")]
    assert found == ["re_1", None]


def test_the_end_of_another_enrolment_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    unfiltered(monkeypatch, {"withdrawals": [{"enrollment_id": "en_1"}]})
    assert (programs.has_ended("en_1"), programs.has_ended("en_2")) == (True, False)


def test_a_key_that_comes_back_with_another_amount_is_refused(patient: UUID) -> None:
    key = str(uuid4())
    card = payments.attach_card(patient, "tok_visa", idempotency_key=str(uuid4()))
    charge(patient, card, key)
    assert refusal(lambda: charge(patient, card, key, cents=1)) == "idempotency_key_reused"


def test_a_card_can_be_invalid_or_declined_or_somebody_elses(sandbox: SandboxProcess, patient: UUID) -> None:
    assert refusal(lambda: payments.attach_card(patient, "tok_invalid", idempotency_key=str(uuid4()))) == "card_invalid"
    declined = payments.attach_card(patient, "tok_declined_1", idempotency_key=str(uuid4()))
    assert refusal(lambda: charge(patient, declined, str(uuid4()))) == "card_declined"
    other = UUID(sandbox.account(email=f"{uuid4()}@example.com")["patient_uuid"])
    assert refusal(lambda: charge(other, declined, str(uuid4()))) == "another_patient"
    assert refusal(lambda: charge(patient, "card_of_nobody", str(uuid4()))) == "unknown_card"


def test_an_enrolment_that_has_ended_is_found(patient: UUID, token: str) -> None:
    visit = visits.start(patient, "body", token=token, idempotency_key=str(uuid4()))
    enrolment = programs.enroll(
        patient, visit, program="body", plan="monthly", payment_status="paid", idempotency_key=str(uuid4())
    )
    assert not programs.has_ended(enrolment)
    programs.withdraw(enrolment, idempotency_key=str(uuid4()))
    assert programs.has_ended(enrolment)

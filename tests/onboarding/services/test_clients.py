"""Each client against the sandbox: what comes back is what it promises, also where a service says more than asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from onboarding.payload import NetNew, parse
from onboarding.samples import Kind, sample
from onboarding.services import accounts, payments, profiles, programs, tokens, visits
from onboarding.services.http import Service
from tests.sandbox_process import SandboxProcess
from workflows.errors import StepError


@pytest.fixture
def patient(sandbox: SandboxProcess) -> UUID:
    return UUID(sandbox.account(email=f"{uuid4()}@example.com")["patient_uuid"])


@pytest.fixture
def token(patient: UUID) -> str:
    return tokens.issue(patient).access_token.get_secret_value()


def key() -> str:
    return str(uuid4())


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(StepError) as error:
        call()
    return error.value.code


def test_two_submissions_with_one_email_make_one_account(sandbox: SandboxProcess) -> None:
    submission = parse(sample(Kind.NET_NEW, seed=int(uuid4())).payload)
    assert isinstance(submission, NetNew)
    accounts.create(submission.patient, reference="first", idempotency_key=key())
    second = refusal(lambda: accounts.create(submission.patient, reference="second", idempotency_key=key()))
    assert second == "email_taken"


def test_profiles_and_visits_ask_for_the_patients_own_token(sandbox: SandboxProcess, patient: UUID, token: str) -> None:
    other = UUID(sandbox.account(email=f"{uuid4()}@example.com")["patient_uuid"])

    def update(whose: UUID, token: str) -> Callable[[], object]:
        return lambda: profiles.update_phone_number(whose, "+12025550123", token=token, idempotency_key=key())

    assert refusal(lambda: tokens.issue(uuid4())) == "unknown_patient"
    assert refusal(update(patient, "")) == "token_invalid"
    assert refusal(update(patient, f"{token}x")) == "token_invalid"
    assert refusal(update(other, token)) == "another_patient"
    assert refusal(lambda: visits.start(other, "body", token=token, idempotency_key=key())) == "another_patient"


def charge(patient: UUID, card: str) -> str:
    return payments.charge(patient, card, amount_cents=14500, currency="usd", idempotency_key=key())


def test_a_card_is_charged_for_its_own_patient_only(sandbox: SandboxProcess, patient: UUID) -> None:
    card = payments.attach_card(patient, "tok_visa", idempotency_key=key())
    other = UUID(sandbox.account(email=f"{uuid4()}@example.com")["patient_uuid"])
    assert refusal(lambda: charge(other, card)) == "another_patient"
    assert refusal(lambda: charge(patient, "card_of_nobody")) == "unknown_card"


def test_a_part_of_a_charge_is_not_all_of_it(sandbox: SandboxProcess, patient: UUID) -> None:
    """A goodwill refund of five dollars, by hand, must not pass for the refund that is due."""
    charged = charge(patient, payments.attach_card(patient, "tok_visa", idempotency_key=key()))
    goodwill = httpx.post(
        f"{sandbox.url}/payments/refunds",
        json={"charge_id": charged, "amount_cents": 500},
        headers={"Idempotency-Key": key()},
    )
    assert goodwill.status_code == 201
    assert payments.find_refund(charged, amount_cents=14500) is None
    rest = payments.refund(charged, idempotency_key=key())
    assert payments.find_refund(charged, amount_cents=14500) == rest
    assert payments.refund(charged, idempotency_key=key()) is None, "it had been given back before"


def unfiltered(monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]) -> None:
    """Let every service answer each question with this, whatever it was asked for."""
    monkeypatch.setattr(Service, "read", lambda *_, answer, **__: answer.model_validate(body))


def test_the_refund_of_another_charge_gives_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    unfiltered(monkeypatch, {"refunds": [{"refund_id": "re_1", "charge_id": "ch_1", "amount_cents": 500}]})
    found = [payments.find_refund(charge_id, amount_cents=500) for charge_id in ("ch_1", "ch_2")]
    assert found == ["re_1", None]


def test_an_enrolment_that_has_ended_is_found_and_ended_once(patient: UUID, token: str) -> None:
    visit = visits.start(patient, "body", token=token, idempotency_key=key())
    checkout = parse(sample(Kind.NET_NEW).payload).checkout
    enrolment = programs.enroll(patient, visit, checkout, payment_status="paid", idempotency_key=key())
    assert not programs.has_ended(enrolment)
    for _ in range(2):
        programs.withdraw(enrolment, idempotency_key=key())
        assert programs.has_ended(enrolment)

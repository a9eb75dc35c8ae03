from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onboarding.context import OnboardingContext
from onboarding.samples import Kind, Sample, samples
from onboarding.steps import account, clinical
from onboarding.workflow import ONBOARDING
from tests.sandbox_process import SandboxProcess
from workflows.definition import definitions
from workflows.errors import RetryableStepError, StepError
from workflows.models import Workflow
from workflows.waits import Approval, Received

Run = Callable[[Workflow], OnboardingContext]

# Several of each kind, with and without insurance, preferences and a verification.
SAMPLES = list(samples(50, seed=4711))


@pytest.fixture(autouse=True)
def _nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """How a wait works is for the engine's tests."""
    monkeypatch.setattr(clinical, "require_approval", lambda *_, **__: Approval(decided_by="dr.grey", reason=""))

    def found_at_once(*_: Any, look: Callable[[], dict[str, Any]], **__: Any) -> Received:
        return Received(name="", payload=look(), source="look", received_at=datetime.now(UTC))

    monkeypatch.setattr(account, "wait_for_signal", found_at_once)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.kind}-{sample.idempotency_key.hex[:4]}")
def test_a_submission_has_the_effects_of_its_kind_once_each_however_often_it_is_run(
    sample: Sample, sandbox: SandboxProcess, new_workflow: Callable[..., Workflow], run: Run
) -> None:
    if sample.account:
        sandbox.account(**sample.account)
    workflow = new_workflow(sample.payload, sample.idempotency_key)
    for _ in range(2):
        if sample.code:
            with pytest.raises(StepError) as error:
                run(workflow)
            assert error.value.code == sample.code
        else:
            context = run(workflow)
            assert context.payment_status == ("payment_due" if sample.kind is Kind.CARD_INVALID else "paid")
            assert context.clinical_review_by == ("dr.grey" if sample.needs_review else None)
    # To undo is the engine's business, and nothing that a step does.
    expected = [effect for effect in sample.effects if effect != ("payments", "refund")]
    assert sandbox.effects_of(workflow.key) == expected


def test_a_transient_failure_of_any_service_delays_and_repeats_nothing(
    sandbox: SandboxProcess, new_workflow: Callable[..., Workflow], run: Run
) -> None:
    """Every change loses its first answer: the list is run again until all got through."""
    sample = max((s for s in samples(40, seed=7) if s.kind is Kind.NET_NEW), key=lambda s: len(s.effects))
    workflow = new_workflow(sample.payload, sample.idempotency_key)
    # Best-effort steps are not tried again in this loop, so their services stay well.
    for service, operation in set(sample.effects) - {
        ("insurance", "verify_insurance"),
        ("payments", "attach_card"),
        ("messages", "set_communication_preferences"),
        ("accounts", "link_identity_verification"),
        ("messages", "send_confirmation"),
    }:
        sandbox.fault(service, operation, "drop_after", count=1)
    attempts = 0
    while True:
        attempts += 1
        try:
            run(workflow)
            break
        except RetryableStepError:
            assert attempts < 20
    assert attempts == len(sample.effects) - 5 + 1
    performed = sandbox.effects_of(workflow.key)
    assert sorted(performed) == sorted(sample.effects)


def test_the_context_for_people_holds_no_secret(
    sandbox: SandboxProcess, new_workflow: Callable[..., Workflow], run: Run
) -> None:
    sample = next(s for s in samples(9, seed=99) if s.kind is Kind.NET_NEW)
    context = run(new_workflow(sample.payload))
    copy = context.model_dump_json()
    assert str(context.patient) in copy
    for secret in (context.token, sample.payload["patient"]["password"], sample.payload["patient"]["email"]):
        assert secret not in copy


def test_the_list_is_what_the_project_runs() -> None:
    assert definitions()["onboarding"] is ONBOARDING
    assert len(ONBOARDING.steps) == 21
    assert len({step.name for step in ONBOARDING.steps}) == 21


def test_it_expires_and_not_before_all_that_may_rightly_take_time() -> None:
    """One after the other: both waits, an outage of a day, and a long week-end until a person answers a question."""
    waits = account.LINKED_ACCOUNT_TIMEOUT + clinical.REVIEW_TIMEOUT
    assert ONBOARDING.expires_after is not None
    assert ONBOARDING.expires_after > waits + timedelta(days=1) + timedelta(days=4)


def test_what_can_be_mended_later_is_best_effort() -> None:
    assert [step.name for step in ONBOARDING.steps if step.best_effort] == [
        "verify_insurance",
        "attach_payment_card",
        "set_communication_preferences",
        "link_identity_verification",
        "send_confirmation",
    ]


def test_what_changes_something_elsewhere_is_once_or_repeatable() -> None:
    changing = [step for step in ONBOARDING.steps if "key_for(" in inspect.getsource(step.function)]  # type: ignore[arg-type]
    assert len(changing) == 15
    assert all(step.once != step.repeatable for step in changing)
    assert [step.name for step in changing if step.repeatable] == ["save_questionnaire"]


def test_every_key_names_the_step_it_is_for() -> None:
    for step in ONBOARDING.steps:
        source = inspect.getsource(step.function)  # type: ignore[arg-type]
        if "key_for(" in source:
            assert f'key_for(workflow, "{step.name}")' in source

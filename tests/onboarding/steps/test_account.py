from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4
from zlib import crc32

import pytest

from onboarding.context import OnboardingContext
from onboarding.samples import Kind, Sample, sample
from onboarding.steps import account as steps
from tests.onboarding.steps.conftest import Prepare
from tests.sandbox_process import SandboxProcess
from workflows.errors import StepError
from workflows.models import Workflow

NewWorkflow = Callable[..., Workflow]
TYPES = (Kind.NET_NEW, Kind.EXISTING, Kind.LINKED)


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Callable[[Kind], Sample]:
    """A sample of a kind that no other test has sent."""
    return lambda kind: sample(kind, seed=crc32(request.node.name.encode()))


@pytest.mark.parametrize("kind", TYPES)
def test_validate_payload_runs_for_every_type(kind: Kind, new_workflow: NewWorkflow) -> None:
    assert steps.validate_payload(workflow=new_workflow(sample(kind).payload), context=OnboardingContext()) == {}


def test_validate_payload_refuses_an_invalid_one(new_workflow: NewWorkflow) -> None:
    with pytest.raises(StepError) as error:
        steps.validate_payload(workflow=new_workflow(sample(Kind.INVALID).payload), context=OnboardingContext())
    assert error.value.code == "invalid_payload"


@pytest.mark.parametrize(
    ("step", "applies_to"),
    [
        (steps.validate_duplicate_email, Kind.NET_NEW),
        (steps.create_account, Kind.NET_NEW),
        (steps.look_up_account, Kind.EXISTING),
    ],
)
def test_each_type_has_its_own_way_to_the_account(
    step: Callable[..., object],
    applies_to: Kind,
    sandbox: SandboxProcess,
    new_workflow: NewWorkflow,
    fresh: Callable[[Kind], Sample],
) -> None:
    for kind in TYPES:
        submission = fresh(kind)
        account = sandbox.account(**submission.account) if submission.account else {}
        result = step(workflow=new_workflow(submission.payload), context=OnboardingContext())
        if kind is not applies_to:
            assert result is None
        elif account:
            assert result == {"patient_uuid": account["patient_uuid"]}
        else:
            assert result is not None


def test_an_email_is_taken_when_somebody_else_has_it(
    sandbox: SandboxProcess, new_workflow: NewWorkflow, fresh: Callable[[Kind], Sample]
) -> None:
    submission = fresh(Kind.EMAIL_TAKEN)
    sandbox.account(**submission.account or {})
    with pytest.raises(StepError) as error:
        steps.validate_duplicate_email(workflow=new_workflow(submission.payload), context=OnboardingContext())
    assert error.value.code == "email_taken"
    assert submission.payload["patient"]["email"] not in str(error.value)


def test_an_email_is_not_taken_by_our_own_account_of_the_last_attempt(
    sandbox: SandboxProcess, new_workflow: NewWorkflow, fresh: Callable[[Kind], Sample]
) -> None:
    workflow = new_workflow(fresh(Kind.NET_NEW).payload)
    first = steps.create_account(workflow=workflow, context=OnboardingContext())
    assert steps.validate_duplicate_email(workflow=workflow, context=OnboardingContext()) == {}
    assert steps.create_account(workflow=workflow, context=OnboardingContext()) == first
    assert sandbox.effects_of(workflow.key) == [("accounts", "create_account")]


def test_two_submissions_with_one_email_make_one_account(
    sandbox: SandboxProcess, new_workflow: NewWorkflow, fresh: Callable[[Kind], Sample]
) -> None:
    payload = fresh(Kind.NET_NEW).payload
    steps.create_account(workflow=new_workflow(payload), context=OnboardingContext())
    with pytest.raises(StepError) as error:
        steps.create_account(workflow=new_workflow(payload), context=OnboardingContext())
    assert error.value.code == "email_taken"


def test_an_existing_patient_without_an_account_is_refused(
    sandbox: SandboxProcess, new_workflow: NewWorkflow, fresh: Callable[[Kind], Sample]
) -> None:
    with pytest.raises(StepError) as error:
        steps.look_up_account(workflow=new_workflow(fresh(Kind.EXISTING).payload), context=OnboardingContext())
    assert error.value.code == "account_not_found"


@pytest.mark.parametrize("kind", [Kind.NET_NEW, Kind.EXISTING])
def test_only_a_linked_submission_waits_for_its_account(
    kind: Kind, new_workflow: NewWorkflow, fresh: Callable[[Kind], Sample]
) -> None:
    workflow = new_workflow(fresh(kind).payload)
    assert steps.await_linked_account(workflow=workflow, context=OnboardingContext()) is None


def test_a_session_of_another_patient_opens_nothing(sandbox: SandboxProcess, prepare: Prepare) -> None:
    workflow, _ = prepare(Kind.EXISTING)
    other = sandbox.account(email=f"{uuid4()}@example.com")
    workflow.payload["session_token"] = other["session_token"]
    with pytest.raises(StepError) as error:
        steps.look_up_account(workflow=workflow, context=OnboardingContext())
    assert error.value.code == "session_mismatch"


@pytest.mark.parametrize("code", ["session_unknown", "session_expired"])
def test_a_session_that_is_over_is_refused(code: str, sandbox: SandboxProcess, prepare: Prepare) -> None:
    workflow, _ = prepare(Kind.EXISTING)
    session = workflow.payload["session_token"] = f"session_{uuid4()}"
    if code == "session_expired":
        email = workflow.payload["patient"]["email"]
        sandbox.account(email=email, session_token=session, session_expires_in_s=0)
    with pytest.raises(StepError) as error:
        steps.look_up_account(workflow=workflow, context=OnboardingContext())
    assert error.value.code == code
    assert session not in str(error.value)


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_gets_a_token_of_its_patient(kind: Kind, prepare: Prepare) -> None:
    workflow, context = prepare(kind)
    result = steps.exchange_token(workflow=workflow, context=context)
    assert result is not None
    assert result["access_token"].startswith(f"{context.patient}.")


def test_a_token_needs_no_session_any_more(prepare: Prepare) -> None:
    workflow, context = prepare(Kind.EXISTING)
    workflow.payload["session_token"] = "session_of_nobody"
    result = steps.exchange_token(workflow=workflow, context=context)
    assert result is not None
    assert result["access_token"].startswith(f"{context.patient}.")


def test_an_identity_verification_is_linked_when_there_is_one(sandbox: SandboxProcess, prepare: Prepare) -> None:
    workflow, context = prepare(identity_verification_id="idv_1")
    assert steps.link_identity_verification(workflow=workflow, context=context) == {}
    assert sandbox.effects_of(workflow.key) == [("accounts", "link_identity_verification")]
    workflow, context = prepare(identity_verification_id=None)
    assert steps.link_identity_verification(workflow=workflow, context=context) is None
    assert isinstance(context.patient, UUID)

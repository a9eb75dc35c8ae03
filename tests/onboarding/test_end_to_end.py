"""Submissions of every kind through the real engine, against the real sandbox."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import connections
from django.utils import timezone

from onboarding.context import OnboardingContext
from onboarding.samples import Kind, Sample, sample, samples
from onboarding.services import payments
from onboarding.steps.account import create_account
from onboarding.workflow import ONBOARDING
from tests.engine import again, outcomes, work
from tests.sandbox_process import SandboxProcess
from tests.workflows.features.outages.services import open_circuit, trial_is_due
from workflows import operations
from workflows.console.workflow_page import page
from workflows.engine.compensation import MAX_UNDO_FAILURES
from workflows.errors import StepError
from workflows.features.by_hand import operations as by_hand
from workflows.models import Confirmation, Effect, ManualTask, Service, Workflow
from workflows.operations.payments import may_have_been_charged
from workflows.submissions import submit

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "attempt_log"])


@pytest.fixture(autouse=True)
def _connections_are_closed() -> Iterator[None]:
    yield
    connections["attempt_log"].close()


def enter(sample: Sample) -> Workflow:
    pk = Workflow.objects.create(
        workflow_type="onboarding", idempotency_key=sample.idempotency_key, payload=sample.payload
    ).pk
    return Workflow.objects.get(pk=pk)


def new_patient() -> Sample:
    return sample(Kind.NET_NEW, seed=int(uuid4()))


@pytest.mark.parametrize("sample", list(samples(len(Kind), seed=2026)), ids=lambda sample: sample.kind)
def test_each_kind_comes_to_rest_where_it_should_with_its_effects_once(sample: Sample, sandbox: SandboxProcess) -> None:
    if sample.account and sample.kind is not Kind.LINKED:
        sandbox.account(**sample.account)
    workflow = work(enter(sample))
    if sample.kind is Kind.LINKED:
        assert (workflow.status, workflow.current_step, workflow.retry_count) == ("PENDING", "await_linked_account", 0)
        sandbox.account(**sample.account or {})
        workflow = again(workflow)
    if sample.needs_review:
        assert (workflow.status, workflow.current_step) == ("PENDING", "request_clinical_review")
        clinician = User.objects.create_superuser(f"dr-{uuid4()}")
        operations.approve(ManualTask.objects.get(workflow=workflow).pk, user=clinician, reason="Fine.")
        workflow = work(workflow)
    if sample.kind is Kind.PROGRAM_FULL:
        assert workflow.compensating
        workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == (sample.status, sample.code)
    assert workflow.current_step == sample.failed_step
    assert sandbox.effects_of(workflow.key) == list(sample.effects)
    if sample.kind is Kind.NET_NEW:  # the ledger agrees with the services one to one; the answers are repeatable
        recorded = Effect.objects.filter(workflow=workflow, state="done").values_list("idempotency_key", flat=True)
        assert len(recorded) == len(sample.effects) - 1
        assert set(recorded) <= {effect["idempotency_key"] for effect in sandbox.effects()}


# A service that never answers takes its whole timeout.
NO_ANSWER = [pytest.param("timeout_after", marks=pytest.mark.slow), "drop_after"]
LOOKED_UP = [
    ("accounts", "create_account", "create_account"),
    ("payments", "charge", "execute_checkout"),
    ("programs", "enroll", "enroll_in_program"),
]


@pytest.mark.parametrize("kind", NO_ANSWER)
@pytest.mark.parametrize(("service", "operation", "step"), LOOKED_UP)
def test_a_call_whose_answer_never_came_is_looked_up_and_not_repeated(
    service: str, operation: str, step: str, kind: str, sandbox: SandboxProcess
) -> None:
    sample = new_patient()
    sandbox.fault(service, operation, kind, count=1)
    workflow = work(enter(sample))
    effect = Effect.objects.get(workflow=workflow, step=step)
    assert (effect.state, workflow.current_step) == ("unknown", step)
    # Repeated, it would be answered like this for ever.
    sandbox.fault(service, operation, "status", status=500)
    workflow = again(workflow)
    assert workflow.status == "COMPLETE"
    effect.refresh_from_db()
    assert (effect.state, effect.settled_by) == ("done", "lookup")
    assert sandbox.effects_of(workflow.key) == list(sample.effects)


@pytest.fixture
def returning_patient(sandbox: SandboxProcess) -> Sample:
    """An existing patient's submission, with the account that it counts on."""
    returning = sample(Kind.EXISTING, seed=int(uuid4()))
    sandbox.account(**returning.account or {})
    return returning


def stopped_at_the_enrolment(sandbox: SandboxProcess, submission: Sample) -> Workflow:
    sandbox.fault("programs", "enroll", "status", status=503, count=1)
    workflow = work(enter(submission))
    assert (workflow.status, workflow.current_step) == ("PENDING", "enroll_in_program")
    return workflow


def test_an_attempt_hours_later_needs_no_session_and_leaves_the_bill_as_it_was_changed_meanwhile(
    sandbox: SandboxProcess, returning_patient: Sample
) -> None:
    exchanges = sandbox.fault("tokens", "exchange_session", "slow", delay_s=0)
    set_bills = sandbox.fault("payments", "configure_billing", "slow", delay_s=0)
    workflow = stopped_at_the_enrolment(sandbox, returning_patient)
    done = set(Effect.objects.filter(workflow=workflow, state="done").values_list("step", flat=True))
    assert done >= {"look_up_account", "start_visit", "update_address", "configure_billing", "execute_checkout"}
    sandbox.account(**returning_patient.account or {}, session_expires_in_s=0)
    workflow = again(workflow)
    assert workflow.status == "COMPLETE"
    assert {name for name, outcome in outcomes(workflow).items() if outcome == "recorded"} == done, "none is repeated"
    performed = sandbox.effects_of(workflow.key)
    assert performed == list(returning_patient.effects)
    assert performed.index(("payments", "configure_billing")) < performed.index(("payments", "charge"))
    # Also under a key that the service has forgotten by then.
    assert [sandbox.lift_fault(each["id"])["fired"] for each in (exchanges, set_bills)] == [1, 1]


def test_a_session_that_cannot_be_checked_for_an_outage_is_checked_afterwards_and_nobody_is_asked(
    sandbox: SandboxProcess, returning_patient: Sample
) -> None:
    """The account is found, so that the step has made a call; that of the session was never sent."""
    open_circuit("tokens")
    workflow = work(enter(returning_patient))
    assert (workflow.status, workflow.parked_on, workflow.current_step) == ("PENDING", "tokens", "look_up_account")
    trial_is_due("tokens")
    workflow = again(workflow)
    assert (workflow.status, workflow.parked_on) == ("COMPLETE", "")
    assert sandbox.effects_of(workflow.key) == list(returning_patient.effects)
    assert not ManualTask.objects.filter(workflow=workflow).exists()


@pytest.mark.parametrize(
    ("service", "operation", "circuit"),
    [
        ("insurance", "verify_insurance", "insurance verification"),
        ("accounts", "link_identity_verification", "identity link"),
        ("insurance", "save_insurance", "insurance"),
        ("messages", "send_confirmation", "messages"),
    ],
)
def test_what_nobody_waits_for_is_in_an_outage_alone_where_the_rest_of_its_service_matters(
    service: str, operation: str, circuit: str, sandbox: SandboxProcess
) -> None:
    """Else the answers of the others would keep its circuit closed, and each of its calls would take its time."""
    sandbox.fault(service, operation, "status", status=503)
    wanted = (each for each in samples(200, seed=12) if each.kind is Kind.NET_NEW)
    patient = next(each for each in wanted if each.payload["insurance"] and each.payload["identity_verification_id"])
    workflow = work(enter(patient))
    assert workflow.status == ("PENDING" if operation == "save_insurance" else "COMPLETE")
    assert [each.name for each in Service.objects.filter(since__isnull=False)] == [circuit]


@pytest.mark.parametrize("code", ["account_not_found", "session_unknown", "session_expired", "session_mismatch"])
def test_a_patient_whose_session_does_not_prove_whose_account_it_is_changes_nothing_anywhere(
    code: str, sandbox: SandboxProcess
) -> None:
    returning = sample(Kind.EXISTING, seed=int(uuid4()))
    email, session = returning.payload["patient"]["email"], returning.payload["session_token"]
    if code != "account_not_found":
        sandbox.account(email=email)
    if code == "session_expired":
        sandbox.account(email=email, session_token=session, session_expires_in_s=0)
    if code == "session_mismatch":
        sandbox.account(email=f"another.{email}", session_token=session)
    workflow = work(enter(returning))
    assert (workflow.status, workflow.last_error_code) == ("FAILED", code)
    assert workflow.current_step == "look_up_account"
    assert sandbox.effects_of(workflow.key) == []


def test_who_was_enrolled_as_unpaid_is_not_charged_when_the_card_can_be_attached_later(
    sandbox: SandboxProcess,
) -> None:
    """Enrolled and charged, dunning would collect a second time; and the enrolment's key would meet another body."""
    sandbox.fault("payments", "attach_card", "status", status=422, count=1)
    sandbox.fault("programs", "enroll", "drop_after", count=1)
    workflow = work(enter(new_patient()))
    assert workflow.current_step == "enroll_in_program"
    workflow = again(workflow)
    assert (workflow.status, workflow.context["payment_status"]) == ("COMPLETE", "payment_due")
    performed = sandbox.effects_of(workflow.key)
    assert ("payments", "charge") not in performed
    assert performed.count(("programs", "enroll")) == 1


def fails_for_good_after_the_charge(sandbox: SandboxProcess) -> Workflow:
    sandbox.fault("programs", "enroll", "status", status=422, count=1)
    workflow = work(enter(new_patient()))
    assert (workflow.compensating, workflow.current_step) == (True, "enroll_in_program")
    return workflow


def test_a_charge_followed_by_an_enrolment_that_fails_for_good_is_refunded(sandbox: SandboxProcess) -> None:
    workflow = work(fails_for_good_after_the_charge(sandbox))
    assert (workflow.status, workflow.compensating, workflow.current_step) == ("FAILED", False, "enroll_in_program")
    performed = sandbox.effects_of(workflow.key)
    assert performed.count(("payments", "charge")) == performed.count(("payments", "refund")) == 1
    assert performed[-1] == ("payments", "refund")
    charge = Effect.objects.get(workflow=workflow, step="execute_checkout", undo=False)
    assert charge.state == "undone"
    refund = Effect.objects.get(workflow=workflow, undo=True)
    assert (refund.state, refund.idempotency_key) == ("done", f"{charge.idempotency_key}:undo")
    assert refund.result["refund_id"].startswith("re_")


@pytest.mark.parametrize("kind", NO_ANSWER)
def test_a_refund_whose_answer_never_came_is_sent_again_and_made_once(kind: str, sandbox: SandboxProcess) -> None:
    workflow = fails_for_good_after_the_charge(sandbox)
    sandbox.fault("payments", "refund", kind, count=1)
    workflow = work(workflow)
    assert workflow.compensating
    assert again(workflow).status == "FAILED"
    assert sandbox.effects_of(workflow.key).count(("payments", "refund")) == 1


def test_a_refund_that_somebody_made_by_hand_is_not_made_again(sandbox: SandboxProcess) -> None:
    workflow = fails_for_good_after_the_charge(sandbox)
    charge = Effect.objects.get(workflow=workflow, step="execute_checkout").result["charge_id"]
    by_hand = sandbox.http.post("/payments/refunds", json={"charge_id": charge}, headers={"Idempotency-Key": "by hand"})
    assert by_hand.status_code == 201
    assert work(workflow).status == "FAILED"
    assert Effect.objects.get(workflow=workflow, undo=True).result == {"refund_id": None}


def test_who_has_not_paid_is_not_refunded(sandbox: SandboxProcess) -> None:
    sandbox.fault("payments", "attach_card", "status", status=422, count=1)
    workflow = work(fails_for_good_after_the_charge(sandbox))
    assert workflow.status == "FAILED"
    assert ("payments", "refund") not in sandbox.effects_of(workflow.key)


def test_an_enrolment_in_doubt_is_found_out_before_anything_is_undone(sandbox: SandboxProcess) -> None:
    """It went through, and its answer was lost: the withdrawal comes first, and then the refund."""
    sandbox.fault("programs", "enroll", "drop_after", count=1)
    workflow = work(enter(new_patient()))
    assert workflow.current_step == "enroll_in_program"
    operations.cancel(workflow.pk, user=User.objects.create_superuser(f"ada-{uuid4()}"), reason="By phone.")
    workflow = work(workflow)
    assert workflow.status == "FAILED"
    assert sandbox.effects_of(workflow.key)[-2:] == [("programs", "withdraw"), ("payments", "refund")]


def test_after_a_refund_a_retry_charges_anew(sandbox: SandboxProcess) -> None:
    workflow = work(fails_for_good_after_the_charge(sandbox))
    operations.retry(workflow.pk, user=User.objects.create_superuser(f"ada-{uuid4()}"))
    workflow.refresh_from_db()
    assert workflow.status == "FAILED", "one person charges nobody again"
    seen = [Confirmation.objects.get(workflow=workflow).pk]
    operations.confirm_retry(workflow.pk, user=second_person(), seen=seen, reason="They want it.")
    workflow = work(workflow)
    assert workflow.status == "COMPLETE"
    performed = sandbox.effects_of(workflow.key)
    assert performed.count(("payments", "charge")) == 2
    assert performed.count(("accounts", "create_account")) == 1
    charges = Effect.objects.filter(workflow=workflow, step="execute_checkout", undo=False).order_by("generation")
    assert [charge.state for charge in charges] == ["undone", "done"]


def second_person() -> User:
    joined = timezone.now() - timedelta(days=2)
    return User.objects.create_superuser(f"ada-{uuid4()}", f"{uuid4()}@clinic.example", date_joined=joined)


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ({"kept": True}, r"may have been charged at .*; left as it is by ada-.* at .* UTC\.$"),
        ({"kept": False, "never_happened": True}, r"was not charged: ada-.* said so at .* UTC\.$"),
    ],
    ids=["it stays as it is", "it was never charged"],
)
def test_a_charge_whose_answer_and_lookup_failed_is_what_a_person_says(
    answer: dict[str, bool], line: str, sandbox: SandboxProcess
) -> None:
    lead = User.objects.create_superuser(f"ada-{uuid4()}")
    sandbox.fault("payments", "charge", "drop_after", count=1)
    workflow = work(enter(new_patient()))
    refuses = sandbox.fault("payments", "find_charge", "status", status=422)
    operations.cancel(workflow.pk, user=lead, reason="By phone.")
    for _ in range(MAX_UNDO_FAILURES + 1):
        workflow = again(workflow)
    task = ManualTask.objects.get(workflow=workflow)
    operations.approve(task.pk, user=lead, reason="Not in their list.", answer=answer)
    for asked in Confirmation.objects.filter(task=task):
        operations.confirm(task.pk, user=second_person(), seen=[asked.pk], reason="Nor do I see it.")
    assert again(workflow).status == "FAILED"
    sandbox.lift_fault(refuses["id"])
    shown = page(Workflow.objects.with_state().get(pk=workflow.pk), AnonymousUser())
    assert re.search(line, shown["money"])
    is_held = answer["kept"]
    assert ("charged" in shown["to_tell"].replace("not charged", ""), bool(may_have_been_charged(workflow.pk))) == (
        is_held,
        is_held,
    )
    operations.retry(workflow.pk, user=lead)
    assert work(workflow).status == "COMPLETE"
    assert sandbox.effects_of(workflow.key).count(("payments", "charge")) == 1, "it had been, as nobody knew"


@pytest.mark.parametrize(("made", "status"), [(True, "COMPLETE"), (False, "FAILED")])
def test_an_account_that_was_opened_by_hand_is_the_patients_own(
    made: bool, status: str, sandbox: SandboxProcess
) -> None:
    """Under no reference of ours: the check of the e-mail address runs again. Another patient's stays refused."""
    sandbox.fault("accounts", "create_account", "status", status=422, count=1)
    workflow = work(enter(new_patient()))
    assert (workflow.status, workflow.current_step) == ("FAILED", "create_account")
    opened = sandbox.account(email=workflow.payload["patient"]["email"])["patient_uuid"]
    result, seen = {"patient_uuid": opened if made else str(uuid4())}, operations.ended_at(workflow)
    by_hand.say(workflow.pk, user=second_person(), reason="Done.", reference="desk-7", result=result, seen=seen)
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == (status, "" if made else "email_taken")
    assert ("accounts", "create_account") not in sandbox.effects_of(workflow.key)


@pytest.mark.parametrize(("first_name", "code"), [("", "account_made_before"), ("Zoe", "email_taken")])
def test_a_second_form_is_told_that_the_patients_first_one_has_made_the_account(
    first_name: str, code: str, sandbox: SandboxProcess
) -> None:
    """Not that somebody has one; but nothing is said of the first form of another person."""
    sent = sample(Kind.CARD_DECLINED, seed=int(uuid4())).payload
    first = work(submit(ONBOARDING, sent))
    assert first.last_error_code == "card_declined"
    patient = {**sent["patient"], "password": "another one", **({"first_name": first_name} if first_name else {})}
    second = work(submit(ONBOARDING, {**sent, "patient": patient}))
    assert (second.status, second.current_step, second.last_error_code) == ("FAILED", "validate_duplicate_email", code)
    shown = page(Workflow.objects.with_state().get(pk=second.pk), AnonymousUser())
    assert ("Your first form has made an account" in shown["to_tell"]) == (not first_name)
    assert [row["row"].pk for row in shown["other_rows"]] == [first.pk], "the sentence for staff points to it"
    second.payload = {**sent, "patient": patient}  # as a worker opens it
    with pytest.raises(StepError) as refused:  # as when the first form makes it between that check and this call
        create_account(workflow=second, context=OnboardingContext())
    assert refused.value.code == code
    sandbox.fault("accounts", "find_account", "status", status=500, count=1)
    with pytest.raises(StepError) as refused:
        create_account(workflow=second, context=OnboardingContext())
    assert refused.value.code == "email_taken", "it is not known whose it is"


# --- Questions that answer themselves --------------------------------------------------------------------


def test_a_refund_that_was_refused_stays_a_question_until_it_is_made_by_hand_and_found(sandbox: SandboxProcess) -> None:
    sandbox.fault("payments", "refund", "status", status=400, count=3)
    workflow = work(enter(sample(Kind.PROGRAM_FULL, seed=int(uuid4()))))
    for _ in range(MAX_UNDO_FAILURES + 2):
        workflow = again(workflow)
    assert (workflow.compensating, ManualTask.objects.get(workflow=workflow).state) == (True, "open")
    assert ("payments", "refund") not in sandbox.effects_of(workflow.key)

    charge = Effect.objects.get(workflow=workflow, step="execute_checkout", undo=False)
    assert charge.result is not None
    by_hand = payments.refund(charge.result["charge_id"], idempotency_key=str(uuid4()))
    assert again(workflow).status == "FAILED"
    undo = Effect.objects.get(workflow=workflow, step="execute_checkout", undo=True)
    assert (undo.state, undo.settled_by, undo.result) == ("done", "lookup", {"refund_id": by_hand})
    assert ManualTask.objects.get(workflow=workflow).state == "closed"

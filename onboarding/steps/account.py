"""Who the patient is: find or create the account, and get a token for it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from onboarding.context import OnboardingContext
from onboarding.payload import Existing, Linked, NetNew, submission_of
from onboarding.services import accounts, tokens
from workflows.definition import value_at
from workflows.effects import DONE, KnownEffect, key_for
from workflows.errors import RetryableStepError, StepError
from workflows.models import Effect, Workflow
from workflows.waits import WaitExpired, wait_for_signal

MADE_BEFORE = "An earlier submission of the patient has made the account."
# The signal of the flow that creates the account, sent to its linking id.
ACCOUNT_CREATED = "account.created"
# Most linked accounts appear within seconds, a few after a night in which the other flow was down. If the signal is
# lost, we look after 5 s, 10 s, 20 s ... and then every 15 minutes.
LINKED_ACCOUNT_TIMEOUT = timedelta(days=2)
LINKED_ACCOUNT_LOOK = timedelta(minutes=15)


def validate_payload(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    submission_of(workflow)
    return {}


def validate_duplicate_email(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    submission = submission_of(workflow)
    if not isinstance(submission, NetNew):
        return None
    account = accounts.find_by_email(submission.patient.email)
    # From the second attempt on, our own account is there.
    if account is None or account.reference == workflow.key or _is_on_ledger(workflow, account):
        return {}
    if _is_of_earlier_form(workflow, account):
        raise StepError(MADE_BEFORE, code="account_made_before")
    raise StepError("Somebody else has an account with this e-mail address.", code="email_taken")


def _refuse_if_of_earlier_form(workflow: Workflow, email: str, *, answers_key: bool) -> None:
    """Raise what the check would have raised. Nothing if the service does not say whose the account is: it is taken."""
    account = None
    with suppress(RetryableStepError):
        account = accounts.find_by_email(email)
    if account is not None and _is_of_earlier_form(workflow, account):
        raise StepError(MADE_BEFORE, code="account_made_before", answers_key=answers_key) from None


def _is_of_earlier_form(workflow: Workflow, account: accounts.Account) -> bool:
    """Whether another submission of the same person has made the account: its reference is that one's key.

    The form proves nobody's identity, so this one does not go on with that account.
    """
    try:
        key = UUID(account.reference or "")
    except ValueError:  # of another client of the service
        return False
    rows = Workflow.objects.filter(workflow_type=workflow.workflow_type, tenant=workflow.tenant)
    first = rows.filter(idempotency_key=key).first()
    return first is not None and _person(first.payload) == _person(workflow.payload)


def _person(payload: Mapping[str, Any]) -> list[str]:
    names = (value_at(payload, f"patient.{field}") for field in ("first_name", "date_of_birth"))
    return [str(each).strip().casefold() for each in names]


def _is_on_ledger(workflow: Workflow, account: accounts.Account) -> bool:
    """Whether a person has said that this account was opened by hand for the workflow: it has no reference of ours."""
    made = Effect.objects.filter(workflow=workflow.pk, step="create_account", state=DONE)
    return made.filter(result__patient_uuid=str(account.patient_uuid)).exists()


def create_account(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    submission = submission_of(workflow)
    if not isinstance(submission, NetNew):
        return None
    try:
        account = accounts.create(
            submission.patient, reference=workflow.key, idempotency_key=key_for(workflow, "create_account")
        )
    except StepError as refused:
        # Made since the check: by the patient's own first form, perhaps, whose words are others.
        if refused.code == "email_taken":
            _refuse_if_of_earlier_form(workflow, submission.patient.email, answers_key=refused.answers_key)
        raise
    return {"patient_uuid": str(account.patient_uuid)}


def find_created_account(
    *, workflow: Workflow, context: OnboardingContext, effect: KnownEffect
) -> dict[str, Any] | None:
    """Whether `create_account` has created the account: the service stores the reference of its creation."""
    account = accounts.find_by_email(submission_of(workflow).patient.email)
    if account is None or account.reference != workflow.key:
        return None
    return {"patient_uuid": str(account.patient_uuid)}


def look_up_account(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    """Find the account of a signed-in patient, and check by the session that it is theirs."""
    submission = submission_of(workflow)
    if not isinstance(submission, Existing):
        return None
    account = accounts.find_by_email(submission.patient.email)
    if account is None:
        raise StepError("There is no account with this e-mail address.", code="account_not_found")
    # The e-mail address was only typed; the session proves the patient's identity.
    if tokens.exchange(submission.session_token.get_secret_value()).patient_uuid != account.patient_uuid:
        raise StepError("The session belongs to another patient than the e-mail address.", code="session_mismatch")
    return {"patient_uuid": str(account.patient_uuid)}


def find_looked_up_account(*, workflow: Workflow, context: OnboardingContext, effect: KnownEffect) -> None:
    """Finds nothing, because `look_up_account` changes nothing. After an interruption that step asks again."""


def await_linked_account(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    """Wait for the other flow's signal that it has created the account. Looks for it now and then."""
    submission = submission_of(workflow)
    if not isinstance(submission, Linked):
        return None

    def look() -> dict[str, Any] | None:
        account = accounts.find_by_linking_id(submission.linking_id)
        return None if account is None else {"patient_uuid": str(account.patient_uuid)}

    try:
        signal = wait_for_signal(
            workflow,
            "linked_account",
            ACCOUNT_CREATED,
            timeout=LINKED_ACCOUNT_TIMEOUT,
            look=look,
            look_every=LINKED_ACCOUNT_LOOK,
            waiting_for="the account that another flow creates",
        )
    except WaitExpired:
        raise StepError("The linked account was not created in two days.", code="linked_account_missing") from None
    found = signal.payload if signal.looked_up else look()
    if found is None:
        raise RetryableStepError("The linked account cannot be seen yet.", code="linked_account_missing")
    return found


def exchange_token(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    """Get this attempt's own token. The patient's session may be over, but the account is settled."""
    return {"access_token": tokens.issue(context.patient).access_token.get_secret_value()}


def link_identity_verification(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    submission = submission_of(workflow)
    if submission.identity_verification_id is None:
        return None
    accounts.link_identity_verification(
        context.patient,
        submission.identity_verification_id,
        idempotency_key=key_for(workflow, "link_identity_verification"),
    )
    return {}

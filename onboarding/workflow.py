"""Onboarding: the whole process, in order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from onboarding.context import OnboardingContext
from onboarding.listings import LISTINGS
from onboarding.payload import AnySubmission
from onboarding.steps.account import (
    await_linked_account,
    create_account,
    exchange_token,
    find_created_account,
    find_looked_up_account,
    link_identity_verification,
    look_up_account,
    validate_duplicate_email,
    validate_payload,
)
from onboarding.steps.clinical import request_clinical_review
from onboarding.steps.insurance import save_insurance, verify_insurance
from onboarding.steps.messages import send_confirmation, set_communication_preferences
from onboarding.steps.payment import (
    attach_payment_card,
    configure_billing,
    execute_checkout,
    find_charge,
    find_refund,
    refund_checkout,
)
from onboarding.steps.profile import update_address, update_personal_information, update_phone_number
from onboarding.steps.program import enroll_in_program, find_enrollment, find_withdrawal, withdraw_from_program
from onboarding.steps.visit import save_questionnaire, start_visit
from onboarding.wording import WORDING
from workflows.correctable import Correctable
from workflows.definition import Retention, Retry, Slo, Step, WorkflowDefinition, WorkflowStep
from workflows.search import normalise
from workflows.search.search_keys import SearchKey

# After its signal the step may still look in vain: a night's outage of accounts must not end a wait of two days.
LINKED_ACCOUNT = Retry(base_delay=5, max_delay=15 * 60, max_attempts=200)

# How long the services honour an idempotency key: a day is common among payment services.
KEY_TTL = timedelta(hours=24)

# Counted from the submission. A workflow that has not finished by then fails, and its charge is refunded. It is longer
# than all legitimate waits together: a linked account (2 days), a clinician's review (3), an outage (1), and a long
# weekend until a person answers a question (4): 10 days.
EXPIRES_AFTER = timedelta(days=14)

# Within the day for which keys are honoured: after a minute, then later each time, up to an hour.
FOLLOW_UP = Retry(base_delay=60, max_delay=3600, max_attempts=20)

STEPS: Sequence[Step | WorkflowStep] = [
    # Refuse unusable submissions before anything is changed.
    validate_payload,
    validate_duplicate_email,
    # What `stays` does no harm if the workflow fails later: the account is the patient's to use, their data and their
    # card are theirs, nothing is billed without an enrolment, and some calls only read.
    #
    # Each type of submission finds the patient's account in its own way: one of these three applies.
    Step(create_account, once=True, stays=True, lookup=find_created_account, returns=("patient_uuid",)),
    # Once, because the patient's session ends within hours: after an outage or a review it could not be checked again.
    # The call only reads: after a lost outcome it is made again at once.
    Step(look_up_account, once=True, stays=True, lookup=find_looked_up_account, settle=0, returns=("patient_uuid",)),
    Step(await_linked_account, retry=LINKED_ACCOUNT),
    # The steps below act in the patient's name. Not once, because tokens expire, and are not stored.
    exchange_token,
    Step(start_visit, once=True, stays=True, key_ttl=KEY_TTL, returns=("visit_uuid",)),
    # Once, because patients can change all of this themselves: a second call, days later, would overwrite their
    # changes.
    Step(update_personal_information, once=True, stays=True, key_ttl=KEY_TTL, returns=()),
    Step(update_phone_number, once=True, stays=True, key_ttl=KEY_TTL, returns=()),
    Step(update_address, once=True, stays=True, key_ttl=KEY_TTL, returns=()),
    # A policy is saved even if it turns out not to cover the program: billing asks again each month.
    Step(save_insurance, once=True, stays=True, key_ttl=KEY_TTL, returns=()),
    # Once, because each call asks the payer again.
    Step(verify_insurance, best_effort=True, once=True, stays=True, key_ttl=KEY_TTL, returns=("insurance_verified",)),
    # A clinician sees the answers before any money moves. Repeatable, because only this workflow writes to its visit,
    # and always the same answers.
    Step(save_questionnaire, repeatable=True),
    request_clinical_review,
    # Without a card the patient is still enrolled, and dunning collects the payment. An outage is not a declined card:
    # the workflow is parked meanwhile.
    Step(
        attach_payment_card,
        best_effort=True,
        parks=True,
        once=True,
        stays=True,
        key_ttl=KEY_TTL,
        returns=("payment_card_id",),
    ),
    # The bill is set before the charge below. Once, because the patient or billing may have changed it since: a second
    # call would undo that.
    Step(configure_billing, once=True, stays=True, key_ttl=KEY_TTL, returns=()),
    # Optional: neither delays an onboarding. Once, because a patient may have opted out, or verified again, since then.
    # What an outage has prevented is done later, after the enrolment.
    Step(
        set_communication_preferences,
        best_effort=True,
        once=True,
        stays=True,
        key_ttl=KEY_TTL,
        returns=(),
        follow_up=FOLLOW_UP,
    ),
    Step(
        link_identity_verification,
        best_effort=True,
        once=True,
        stays=True,
        key_ttl=KEY_TTL,
        returns=(),
        follow_up=FOLLOW_UP,
    ),
    # The charge comes as late as possible, so that little can fail after it; the enrolment needs its outcome. No
    # patient pays for a program that they are not in: if a later step fails, or the workflow is cancelled, the charge
    # is refunded. It is not made while the enrolling service is down, or while many fail there.
    Step(
        execute_checkout,
        once=True,
        undo=refund_checkout,
        lookup=find_charge,
        undo_lookup=find_refund,
        returns=("charge_id", "payment_status"),
        needs=("programs", "enroll_in_program"),
    ),
    Step(
        enroll_in_program,
        once=True,
        undo=withdraw_from_program,
        lookup=find_enrollment,
        undo_lookup=find_withdrawal,
        returns=("enrollment_id",),
    ),
    # The confirmation comes last, so that it is true.
    Step(send_confirmation, best_effort=True, once=True, key_ttl=KEY_TTL, returns=(), follow_up=FOLLOW_UP),
]

# Fields about the submission, not the patient. They are named one by one, because a website may send others.
PUBLIC_FIELDS = (
    "authentication_mode",
    *("checkout.program", "checkout.plan", "checkout.amount_cents", "checkout.currency"),
    *("preferences.sms", "preferences.email"),
)

# What staff may need in full to call or write to a patient. Not the insurance or the answers: people who decide on
# those see them on the task's page.
REVEALABLE = (
    *(f"patient.{name}" for name in ("email", "phone", "first_name", "last_name", "date_of_birth")),
    *(f"address.{name}" for name in ("line1", "line2", "city", "state", "postal_code")),
)
# What lets anybody open an account, or pay.
SECRET_FIELDS = ("patient.password", "session_token", "payment.card_token")

# The fields by which support finds a patient's submission. The website sends phone numbers with their country; staff
# type what they hear: without a country it is a number of the United States.
SEARCH_KEYS = {
    "email": SearchKey("patient.email", normalise.email, label="e-mail address", only_as_hash=True),
    "phone": SearchKey("patient.phone", normalise.phone("1"), label="phone number"),
}

# Fields that patients mistype, which say neither who they are nor what they pay, with the calls that pass them on.
CORRECTABLE = Correctable(
    AnySubmission,
    {
        "patient.email": ("create_account",),
        "patient.phone": ("create_account", "update_phone_number"),
        **{f"address.{part}": ("update_address",) for part in ("line1", "line2", "city", "state", "postal_code")},
    },
)

ONBOARDING = WorkflowDefinition(
    name="onboarding",
    steps=STEPS,
    context_class=OnboardingContext,
    linking_id="linking_id",
    search_keys=SEARCH_KEYS,
    # A patient who reloads the page, or has it open twice, is charged and enrolled once. A family may share an address,
    # and a patient who comes back another day means it.
    business_key=("patient.email", "checkout.program"),
    same_person=("patient.first_name", "patient.date_of_birth"),
    within=timedelta(hours=24),
    expires_after=EXPIRES_AFTER,
    public_fields=PUBLIC_FIELDS,
    revealable=REVEALABLE,
    secret_fields=SECRET_FIELDS,
    wording=WORDING,
    listings=LISTINGS,
    correctable=CORRECTABLE,
    # Nobody takes a patient's money a second time alone.
    two_people=True,
    # For the destinations in OUTBOX_DESTINATIONS: without one nothing is stored.
    publishes=("completed", "failed"),
    # As the articles promise. After ten days all legitimate waits are over: see EXPIRES_AFTER.
    slo=Slo(p95=timedelta(seconds=3), completed=0.999, longest=timedelta(days=10)),
    # The ledger keeps each charge's reference and amount, for later disputes.
    retention=Retention(content=timedelta(days=90)),
)

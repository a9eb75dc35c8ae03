"""The words for staff and patients about an onboarding. `manage.py check` checks them; read aloud what you change."""

from __future__ import annotations

import re
from typing import Any

from django.conf import settings

from workflows.wording import Aim, CallerField, CodeWords, Money, StepWords, Wording

_LATER = "There was a technical problem on our side. Our team is working on it. You do not need to do anything."
_CHECK = "The details that we were sent do not fit together. Please check them and send the form again."

STEPS = {
    "validate_payload": StepWords("Check the form", "Account"),
    "validate_duplicate_email": StepWords("Check that the e-mail address is free", "Account"),
    "create_account": StepWords(
        "Create the account", "Account", where="In the accounts service: search for the patient's e-mail address."
    ),
    "look_up_account": StepWords(
        "Find the patient's account",
        "Account",
        where="In the accounts service: search for the patient's e-mail address.",
    ),
    "await_linked_account": StepWords(
        "Wait for the linked account",
        "Account",
        waiting="We are waiting for the account of your other sign-up. Please finish that; this then goes on.",
    ),
    "exchange_token": StepWords("Get access to the account", "Account"),
    "start_visit": StepWords(
        "Start the visit",
        "Profile",
        where="In the visits service, among the patient's visits: search for the idempotency key.",
    ),
    "update_personal_information": StepWords(
        "Save name and date of birth",
        "Profile",
        where="In the profiles service: open the patient, and compare name and date of birth.",
    ),
    "update_phone_number": StepWords(
        "Save the phone number",
        "Profile",
        where="In the profiles service: open the patient, and compare the phone number.",
    ),
    "update_address": StepWords(
        "Save the address", "Profile", where="In the profiles service: open the patient, and compare the address."
    ),
    "save_insurance": StepWords(
        "Save the insurance",
        "Insurance",
        where="In the insurance service: open the patient, and compare the insurance.",
    ),
    "verify_insurance": StepWords(
        "Ask the insurer whether it covers the program",
        "Insurance",
        where="In the insurance service, among the answers of the insurer: search for the idempotency key.",
    ),
    "save_questionnaire": StepWords("Save the answers to the medical questions", "Medical review"),
    "request_clinical_review": StepWords(
        "Have a clinician review the answers",
        "Medical review",
        waiting="A clinician is looking at your answers. That takes up to three days. You do not need to do anything.",
    ),
    "attach_payment_card": StepWords(
        "Attach the card",
        "Payment",
        where="In the payments service, among the patient's cards: search for the idempotency key.",
    ),
    "configure_billing": StepWords(
        "Set up billing", "Payment", where="In the payments service: open the patient, and compare the billing."
    ),
    "set_communication_preferences": StepWords(
        "Save the wishes for messages",
        "Extras",
        where="In the messages service: open the patient, and compare the wishes.",
    ),
    "link_identity_verification": StepWords(
        "Link the identity check",
        "Extras",
        where="In the accounts service: open the patient, and look whether the identity is linked.",
    ),
    "execute_checkout": StepWords(
        "Charge the card",
        "Enrolment",
        where="In the payments service, among the charges: search for the idempotency key.",
        search=settings.PAYMENTS_SEARCH_URL,
    ),
    "enroll_in_program": StepWords(
        "Enrol in the program",
        "Enrolment",
        where="In the programs service, among the enrolments of the program: search for the idempotency key.",
    ),
    "send_confirmation": StepWords(
        "Send the confirmation",
        "Enrolment",
        where="In the messages service, among those sent: search for the idempotency key.",
    ),
}

CODES = {
    "account_made_before": CodeWords(
        "An earlier submission of the same patient has made the account already: it is among the other submissions on "
        "this page. They sign in with that account, and send the form again.",
        "Your first form has made an account for you already. Please sign in with it, and send the form again.",
        asks_nobody=True,
    ),
    "account_not_found": CodeWords(
        "There is no account with this e-mail address, though the patient came as one who has an account.",
        "We cannot find an account with this e-mail address. Please check the address, or sign up as a new patient.",
    ),
    "another_patient": CodeWords(
        "The card, or the visit, belongs to another patient.",
        "The card cannot be used for this account. Please use another card.",
    ),
    "card_declined": CodeWords(
        "The bank declined the card, so this payment was not taken.",
        "Your bank declined the card, so this payment was not taken. Please ask your bank, or start again with another "
        "card.",
        asks_nobody=True,
    ),
    "card_invalid": CodeWords(
        "The card cannot be used. The patient is enrolled, and the payment is due.",
        "Your card could not be used. You are enrolled all the same; we will ask you for another card.",
    ),
    "email_taken": CodeWords(
        "Somebody has an account with this e-mail address already.",
        "There is an account with this e-mail address already. Please sign in, or use another address.",
        asks_nobody=True,
    ),
    "idempotency_key_reused": CodeWords(
        "A service got another request under the same key. An engineer has to look before it is retried.",
        _LATER,
        ours=True,
    ),
    "idempotency_in_progress": CodeWords("A service is still working on the first call.", _LATER, passing=True),
    "idempotency_key_missing": CodeWords(
        "A call was sent without its key. An engineer has to look.", _LATER, ours=True
    ),
    "insurance_not_eligible": CodeWords(
        "The insurer does not cover the program. The patient is enrolled all the same.",
        "Your insurance does not cover this program. You can still take part and pay for it yourself.",
    ),
    "invalid_payload": CodeWords(
        "The form has fields that are missing or wrong.", _CHECK, asks_nobody=True, names_fields=True
    ),
    "linked_account_missing": CodeWords(
        "The account that the patient was to make elsewhere did not come within two days.",
        "We waited for your account from the other sign-up, and it did not come. Please finish that, then start again.",
    ),
    "made_to_fail": CodeWords("A test made it fail.", _LATER, passing=True),
    "made_unavailable": CodeWords("A test made the service unavailable.", _LATER, passing=True),
    "malformed": CodeWords(
        "A service could not read what we sent. An engineer has to look before it is retried.", _LATER, ours=True
    ),
    "no_answer": CodeWords("A service gave no clear answer.", _LATER, passing=True),
    "no_such_operation": CodeWords(
        "A service does not know what we asked for. An engineer has to look.", _LATER, ours=True
    ),
    "not_ready": CodeWords("A service was not ready.", _LATER, passing=True),
    "profile_locked": CodeWords(
        "Somebody had the patient's profile open in the profiles service, so it could not be saved.",
        _LATER,
        passing=True,
    ),
    "program_full": CodeWords("The program is full.", "The program is full, so we could not enrol you."),
    "refused": CodeWords("A service refused, and did not say why.", _LATER, ours=True),
    "session_expired": CodeWords(
        "The patient's session was over before we could check it.",
        "Your session has expired. Please sign in and start again.",
    ),
    "session_mismatch": CodeWords(
        "The session belongs to another patient than the e-mail address.",
        "You were signed in with another account than the e-mail address in the form. Please sign in and start again.",
    ),
    "session_unknown": CodeWords(
        "The session is not known.", "Your session has expired. Please sign in and start again."
    ),
    "steps_out_of_order": CodeWords("A step ran before what it needs. An engineer has to look.", _LATER, ours=True),
    "token_expired": CodeWords("The access to the account ran out in the midst of it.", _LATER, passing=True),
    "token_invalid": CodeWords("The access to the account was refused.", _LATER, ours=True),
    "too_many_requests": CodeWords("A service got too many calls at once.", _LATER, passing=True),
    "unavailable": CodeWords("A service was not available.", _LATER, passing=True),
    **{
        f"unknown_{name}": CodeWords(
            f"A service does not know the {label}. If somebody has answered here that a call happened, look at the "
            "reference that they gave. An engineer has to look before it is retried.",
            _LATER,
            ours=True,
        )
        for name, label in {
            "card": "card",
            "charge": "charge",
            "enrollment": "enrolment",
            "policy": "policy",
            "visit": "visit",
        }.items()
    },
    "unknown_patient": CodeWords("A service does not know the patient. An engineer has to look.", _LATER, ours=True),
    "unreachable": CodeWords("A service could not be reached.", _LATER, passing=True),
}

RESULTS = {
    "amount_cents": "Amount",
    "card_id": "Card",
    "charge_id": "Charge",
    "enrollment_id": "Enrolment",
    "insurance_verified": "Insurance covers it",
    "patient_uuid": "Patient",
    "payment_card_id": "Card",
    "payment_status": "Payment",
    "refund_id": "Refund",
    "visit_uuid": "Visit",
}


EXAMPLES = {
    "charge_id": "ch_3f9a1c",
    "enrollment_id": "enr_3f9a1c",
    "patient_uuid": "3f9a1c00-7be3-4d15-9c62-1f0a8e5b7d34",
    "payment_card_id": "card_3f9a1c",
    "payment_status": "paid, if the card was charged",
    "visit_uuid": "3f9a1c00-7be3-4d15-9c62-1f0a8e5b7d34",
}

# A valid domain. Anything may follow the @ before the form is checked.
_DOMAIN = re.compile(r"[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+")


def masked_email(value: Any) -> str:
    """`a•••@example.com`: the first letter and the domain, enough to verify a caller who spells the address."""
    name, _, domain = str(value).rpartition("@")
    return f"{name[:1]}•••@{domain}" if name and _DOMAIN.fullmatch(domain) else "•••"


def phone_ending(value: Any) -> str:
    """`ending 23`: the last two digits."""
    digits = [character for character in str(value) if character.isdigit()]
    return f"ending {''.join(digits[-2:])}" if len(digits) > 4 else "•••"


CALLER = (
    CallerField("E-mail", "patient.email", masked_email),
    CallerField("Phone", "patient.phone", phone_ending),
    CallerField("Program", "checkout.program", str),
    CallerField("Plan", "checkout.plan", str),
)

WORDING = Wording(
    title="Onboarding",
    steps=STEPS,
    codes=CODES,
    results=RESULTS,
    examples=EXAMPLES,
    caller=CALLER,
    money=Money(
        step="execute_checkout",
        amount="checkout.amount_cents",
        currency="checkout.currency",
        reference="charge_id",
        refund="refund_id",
    ),
    aim=Aim(
        what="your enrolment in",
        field="checkout.program",
        names={"body": "the body program"},
    ),
    same_business="the same patient and program",
)

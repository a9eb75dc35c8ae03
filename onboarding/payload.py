"""What a submission must look like. The first step checks it; the intake takes any JSON object.

Types are strict ("92" is not a number). Unknown fields are ignored, so that a website with a new field does not turn
its patients away.
"""

from __future__ import annotations

import contextlib
import json
import re
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, LiteralString

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    SecretStr,
    StringConstraints,
    ValidationError,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from workflows.errors import StepError
from workflows.models import Workflow
from workflows.sealing.envelopes import EMPTIED

# The states, the District of Columbia and the territories, by their USPS abbreviations.
US_STATES = (
    "AL AK AZ AR CA CO CT DE FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV NH NJ NM NY NC ND OH OK OR PA "
    "RI SC SD TN TX UT VT VA WA WV WI WY DC AS GU MP PR VI"
)
OLDEST_AGE = 120  # years; the oldest person on record was 122
HIGHEST_AMOUNT_CENTS = 1_000_000  # no plan costs 10,000 USD: a higher amount has a misplaced decimal point


def _rule(pattern: str, sentence: LiteralString) -> AfterValidator:
    """A validator for a regular expression. `sentence` is the message for people."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise PydanticCustomError("rule", sentence)
        return value

    return AfterValidator(check)


def _iso_date(value: Any) -> date:
    # Pydantic would also accept a time of day, and seconds since 1970.
    if isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        with contextlib.suppress(ValueError):
            return date.fromisoformat(value)
    raise PydanticCustomError("rule", "not a date as YYYY-MM-DD")


def _plausible_birth(value: date) -> date:
    today = datetime.now(UTC).date()
    if value >= today:
        raise PydanticCustomError("rule", "not in the past")
    if today.year - value.year > OLDEST_AGE:
        raise PydanticCustomError("rule", "too long ago")
    return value


# Deliberately loose: only a mail shows whether an address accepts mail.
Email = Annotated[
    str,
    StringConstraints(max_length=254),
    _rule(r"[^\s@<>\"(),:;\\\[\]\x00-\x1f]{1,64}@([^\s@.]{1,63}\.)+[^\s@.\d]{2,63}", "not an e-mail address"),
]
Phone = Annotated[str, _rule(r"\+[1-9][0-9]{7,14}", "not a phone number with + and its country code, such as +1")]
PostalCode = Annotated[str, _rule(r"[0-9]{5}(-[0-9]{4})?", "not a US ZIP code")]
State = Annotated[str, _rule("|".join(US_STATES.split()), "not a US state")]
DateOfBirth = Annotated[date, BeforeValidator(_iso_date), AfterValidator(_plausible_birth)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Word = Annotated[str, _rule(r"[a-z0-9][a-z0-9_-]{0,63}", "not a word of lower-case letters, digits, - and _")]
CardToken = Annotated[str, _rule(rf"tok_[A-Za-z0-9_-]{{1,100}}|{re.escape(EMPTIED)}", "not a card token")]
# The accounts service decides what a good password is.
Secret = Annotated[SecretStr, Field(min_length=1, max_length=2000)]


class _Part(BaseModel):
    # Hides what the patient typed, which Pydantic's messages would quote.
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)


class Patient(_Part):
    email: Email
    first_name: Text
    last_name: Text
    date_of_birth: DateOfBirth
    sex: Literal["female", "male", "other", "unknown"]  # FHIR's administrative gender
    phone: Phone


class NewPatient(Patient):
    password: Secret


class Address(_Part):
    line1: Text = Field(title="Street and number")
    line2: Text | None = Field(default=None, title="Second line of the address")
    city: Text
    state: State
    postal_code: PostalCode = Field(title="ZIP code")


class Insurance(_Part):
    payer: Text
    member_id: Text
    group_number: Text | None = None  # many plans have none


class Payment(_Part):
    card_token: CardToken
    billing_postal_code: PostalCode


class Answers(_Part):
    """Answers that decide something have types; all others are passed on as they are."""

    model_config = ConfigDict(extra="allow")

    # Wider than any record: a patient outside has mixed up units or fields.
    height_cm: float = Field(ge=50, le=275, allow_inf_nan=False)
    weight_kg: float = Field(ge=20, le=650, allow_inf_nan=False)
    conditions: list[Text] = Field(max_length=100)
    medications: list[Text] = Field(max_length=100)


class Questionnaire(_Part):
    answers: Answers


class Checkout(_Part):
    program: Word
    plan: Word
    amount_cents: int = Field(gt=0, le=HIGHEST_AMOUNT_CENTS)
    currency: Literal["usd"]


class Preferences(_Part):
    sms: bool
    email: bool


class _Submission(_Part):
    patient: Patient
    address: Address
    insurance: Insurance | None = None
    payment: Payment
    questionnaire: Questionnaire
    checkout: Checkout
    preferences: Preferences | None = None
    identity_verification_id: Text | None = None


class NetNew(_Submission):
    """A new patient, for whom we create an account."""

    authentication_mode: Literal["net_new"]
    patient: NewPatient


class Existing(_Submission):
    """A patient who has an account and was signed in."""

    authentication_mode: Literal["existing"]
    session_token: Secret


class Linked(_Submission):
    """A patient whose account another flow is creating right now."""

    authentication_mode: Literal["linked"]
    linking_id: Text


Submission = NetNew | Existing | Linked


class AnySubmission(RootModel[Annotated[Submission, Field(discriminator="authentication_mode")]]):
    """A submission: one of the three kinds."""

    model_config = ConfigDict(hide_input_in_errors=True)


def submission_of(workflow: Workflow) -> Submission:
    """The workflow's payload, typed. Raises StepError `invalid_payload`, which names fields and rules, never values."""
    return parse(workflow.payload)


def parse(payload: Any) -> Submission:
    try:
        # Through JSON, because the strict types are JSON's: a date is a text.
        return AnySubmission.model_validate_json(json.dumps(payload)).root
    except ValidationError as error:
        message = "; ".join(dict.fromkeys(_sentence(detail) for detail in error.errors(include_input=False)))
    # Outside the except block, because the original error has the values, and must not be the __context__.
    raise StepError(message, code="invalid_payload")


# By Pydantic's error type, because some of its messages quote the input.
_SENTENCES = {
    "missing": "missing",
    "union_tag_invalid": "not one of net_new, existing, linked",
    "union_tag_not_found": "missing",
    "string_type": "not a text",
    "string_too_short": "too short",
    "string_too_long": "too long",
    "too_short": "too short",
    "too_long": "too long",
    "float_type": "not a number",
    "int_type": "not a whole number",
    "int_from_float": "not a whole number",
    "bool_type": "not true or false",
    "list_type": "not a list",
    "model_type": "not an object",
    "model_attributes_type": "not an object",
    **dict.fromkeys(("greater_than", "greater_than_equal", "less_than_equal"), "not a plausible number"),
}


def _sentence(detail: ErrorDetails) -> str:
    kind = detail["type"]
    if kind.startswith("union_tag"):
        return f"authentication_mode: {_SENTENCES[kind]}"
    # The first part is the mode. The rest are names of our fields, and positions in a list.
    field = ".".join(str(part) for part in detail["loc"][1:]) or "payload"
    if kind == "rule":
        return f"{field}: {detail['msg']}"
    if kind == "literal_error":
        return f"{field}: not {detail['ctx']['expected']}"
    return f"{field}: {_SENTENCES.get(kind, 'not valid')}"

from __future__ import annotations

import copy
from typing import Any

import pytest

from onboarding.payload import Existing, Linked, NetNew, parse
from onboarding.samples import Kind, sample
from workflows.errors import RetryableStepError, StepError

CANARY = "c4n4ry-0f-th3-p4t13nt"


def changed(payload: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    payload = copy.deepcopy(payload)
    *parents, last = path.split(".")
    place = payload
    for name in parents:
        place = place[name]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return payload


def refusal(payload: Any) -> str:
    with pytest.raises(StepError) as refused:
        parse(payload)
    assert not isinstance(refused.value, RetryableStepError)
    assert refused.value.code == "invalid_payload"
    return str(refused.value)


@pytest.mark.parametrize(
    ("kind", "expected", "own_field"),
    [
        (Kind.NET_NEW, NetNew, "patient.password"),
        (Kind.EXISTING, Existing, "session_token"),
        (Kind.LINKED, Linked, "linking_id"),
    ],
)
def test_each_authentication_mode_has_a_type_and_a_field_of_its_own(kind: Kind, expected: type, own_field: str) -> None:
    payload = sample(kind).payload
    assert type(parse(payload)) is expected
    assert refusal(changed(payload, own_field, ...)) == f"{own_field}: missing"


@pytest.mark.parametrize("path", ["insurance", "preferences", "identity_verification_id", "address.line2"])
@pytest.mark.parametrize("value", [None, ...])
def test_what_not_everybody_has_may_be_null_or_absent(path: str, value: Any) -> None:
    parse(changed(sample(Kind.NET_NEW).payload, path, value))


def test_fields_it_does_not_know_are_ignored_and_answers_are_kept() -> None:
    payload = sample(Kind.NET_NEW).payload | {"campaign": "big game"}
    submission = parse(changed(payload, "questionnaire.answers.smokes", True))
    assert not hasattr(submission, "campaign")
    assert submission.questionnaire.answers.model_dump()["smokes"] is True


def test_it_names_a_field_that_is_missing() -> None:
    payload = sample(Kind.NET_NEW).payload | {"preferences": {"sms": True, "email": True}}
    for path in (
        *("patient", "address", "payment", "questionnaire", "checkout", "authentication_mode"),
        *(f"patient.{name}" for name in ("email", "first_name", "last_name", "date_of_birth", "sex", "phone")),
        *(f"address.{name}" for name in ("line1", "city", "state", "postal_code")),
        *(f"payment.{name}" for name in ("card_token", "billing_postal_code")),
        *(f"questionnaire.answers.{name}" for name in ("height_cm", "weight_kg", "conditions", "medications")),
        *(f"checkout.{name}" for name in ("program", "plan", "amount_cents", "currency")),
        *(f"preferences.{name}" for name in ("sms", "email")),
    ):
        assert refusal(changed(payload, path, ...)) == f"{path}: missing"


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        ("patient.email", CANARY, "not an e-mail address"),
        ("patient.email", f"{CANARY}@example", "not an e-mail address"),
        ("patient.email", f"{CANARY}@example.com\n", "not an e-mail address"),
        ("patient.email", f"{CANARY * 20}@example.com", "too long"),
        ("patient.first_name", "   ", "too short"),
        ("patient.date_of_birth", "1990-02-30", "not a date as YYYY-MM-DD"),
        ("patient.date_of_birth", "1990-02-28T10:00:00", "not a date as YYYY-MM-DD"),
        ("patient.date_of_birth", 631152000, "not a date as YYYY-MM-DD"),
        ("patient.date_of_birth", "2999-01-01", "not in the past"),
        ("patient.date_of_birth", "1799-01-01", "too long ago"),
        ("patient.sex", CANARY, "not 'female', 'male', 'other' or 'unknown'"),
        ("patient.phone", "+0202555012", "not a phone number with + and its country code, such as +1"),
        ("patient.password", "", "too short"),
        ("address.state", "ny", "not a US state"),
        ("address.postal_code", "1000", "not a US ZIP code"),
        ("address.postal_code", 10001, "not a text"),
        ("payment.card_token", "4242424242424242", "not a card token"),
        ("questionnaire.answers.height_cm", "170", "not a number"),
        ("questionnaire.answers.height_cm", True, "not a number"),
        ("questionnaire.answers.height_cm", 1.7, "not a plausible number"),
        ("questionnaire.answers.weight_kg", 9200, "not a plausible number"),
        ("questionnaire.answers.conditions", CANARY, "not a list"),
        ("checkout.amount_cents", 0, "not a plausible number"),
        ("checkout.amount_cents", 14500.5, "not a whole number"),
        ("checkout.amount_cents", "14500", "not a whole number"),
        ("checkout.currency", "eur", "not 'usd'"),
        ("checkout.program", "Body!", "not a word of lower-case letters, digits, - and _"),
        ("preferences.sms", "yes", "not true or false"),
        ("patient", CANARY, "not an object"),
    ],
)
def test_it_names_the_field_and_the_rule(path: str, value: Any, rule: str) -> None:
    payload = sample(Kind.NET_NEW).payload | {"preferences": {"sms": True, "email": True}}
    assert refusal(changed(payload, path, value)) == f"{path}: {rule}"


def test_it_names_every_field_that_is_wrong_and_the_place_in_a_list() -> None:
    payload = changed(sample(Kind.NET_NEW).payload, "questionnaire.answers.medications", ["aspirin", 7])
    payload = changed(changed(payload, "patient.email", ""), "address.state", "XX")
    assert refusal(payload).split("; ") == [
        "patient.email: not an e-mail address",
        "address.state: not a US state",
        "questionnaire.answers.medications.1: not a text",
    ]


@pytest.mark.parametrize("payload", [None, [], CANARY, 7, True])
def test_it_refuses_what_is_no_object(payload: Any) -> None:
    assert refusal(payload) == "payload: not valid"


@pytest.mark.parametrize("mode", [CANARY, "", None, 7, ["net_new"]])
def test_it_refuses_a_mode_it_does_not_know(mode: Any) -> None:
    payload = sample(Kind.NET_NEW).payload | {"authentication_mode": mode}
    assert refusal(payload) == "authentication_mode: not one of net_new, existing, linked"


@pytest.mark.parametrize(
    "value", [CANARY, [CANARY], {CANARY: CANARY}, {"email": CANARY}, f"{CANARY}\u2028@example.com"]
)
def test_no_error_ever_holds_a_value(value: Any) -> None:
    payload = sample(Kind.NET_NEW).payload
    paths = [
        *payload,
        *(f"{name}.{field}" for name, part in payload.items() if isinstance(part, dict) for field in part),
        *(f"questionnaire.answers.{field}" for field in payload["questionnaire"]["answers"]),
    ]
    refused = []
    for path in paths:
        try:
            parse(changed(payload, path, value))
        except StepError as error:
            refused.append(error)
    assert len(refused) > 20
    assert not [error for error in refused if CANARY in str(error)]
    assert not [error for error in refused if error.__context__], "a validation error that rides along knows the values"


def test_secrets_do_not_show_in_a_printed_submission() -> None:
    payload = sample(Kind.NET_NEW).payload
    assert payload["patient"]["password"] not in repr(parse(payload))
    assert sample(Kind.EXISTING).payload["session_token"] not in repr(parse(sample(Kind.EXISTING).payload))

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from django.db import DataError

from workflows.redaction import frames, masked_reference, names_of_code, private_part, scrub, scrub_foreign


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The card was declined.", "The card was declined."),
        ("No account for zeb@example.org here", "No account for ••• here"),
        ("Call +1 (202) 555-0123 back", "Call +••• back"),
        ("Born 1990-02-28", "Born •••"),
        ("Patient ZEBULON smith", "Patient ••• •••"),
        ("It weighs 92.5", "It weighs •••"),
        ("The Smiths' phone is not in E.164 form", "The Smiths' phone is not in E.164 form"),
        ("nul \x00 and surrogate \ud800", "nul  and surrogate ?"),
    ],
)
def test_it_masks_what_is_somebodys(text: str, expected: str) -> None:
    assert scrub(text, {"patient": {"names": ["Zebulon", "Smith"], "weight": 92.5, "sms": True}}) == expected


def test_it_masks_a_quoted_value_whose_end_was_cut_off() -> None:
    """Python shows 200 characters of what is no number, and no quote after them."""
    with pytest.raises(ValueError, match="Zebulon") as raised:
        int("Zebulon has told us of his illness. " * 10)
    assert scrub_foreign(str(raised.value)) == "invalid literal for int() with base 10: •••"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no such key: 'one\nZebulon' there", "no such key: ••• there"),
        (r"no such path: 'C:\Zebulon\' there", "no such path: ••• there"),
        (r"it was 'Zebulon\'s\' and so on", "it was ••• and so on"),
        (r"it was 'Zeb\'ulon' and so on", "it was ••• and so on"),
        ("it was `Zebulon, and then 'more", "it was •••"),
        ("a patient's weight is no number", "a patient's weight is no number"),
        ("it can't be read", "it can't be read"),
        ("invalid literal for int() with base 10: 'abc'", "invalid literal for int() with base 10: •••"),
    ],
)
def test_it_masks_what_is_quoted_whatever_is_in_it(text: str, expected: str) -> None:
    assert scrub_foreign(text) == expected


def test_backslashes_in_a_quote_without_an_end_are_read_once() -> None:
    """Forty of them took a minute once, and each two more twice as long, while the worker held the row."""
    assert scrub_foreign("it was '" + "\\" * 20_000) == "it was •••"


def takes_one(name: str, *, key: str) -> None: ...


WRONG_CALLS: list[tuple[Callable[[], Any], str]] = [
    (lambda: takes_one("a", key="b", sms=True), "unexpected keyword argument 'sms'"),  # type: ignore[call-arg]
    (lambda: takes_one(), "missing 1 required positional argument: 'name'"),  # type: ignore[call-arg]
    (lambda: takes_one("a", name="b", key="c"), "multiple values for argument 'name'"),  # type: ignore[misc]
    (lambda: None.strip(), "'NoneType' object has no attribute 'strip'"),  # type: ignore[attr-defined]
    (lambda: 1 + "a", "for +: 'int' and 'str'"),  # type: ignore[operator]
    (lambda: len(3), "object of type 'int' has no len()"),  # type: ignore[arg-type]
    (lambda: PATIENT(), "'dict' object is not callable"),  # type: ignore[operator]
    (lambda: nobody_knows, "name 'nobody_knows' is not defined"),  # type: ignore[name-defined]  # noqa: F821
    (lambda: import_module("nobody.knows"), "No module named 'nobody'"),
]


@pytest.mark.parametrize(("call", "told"), WRONG_CALLS)
def test_a_name_in_the_code_is_nobodys_data(call: Callable[[], Any], told: str) -> None:
    with pytest.raises(Exception, match=re.escape(told)) as raised:
        call()
    assert told in scrub_foreign(str(raised.value), names=names_of_code(raised.value))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('column "weight" does not exist', 'column "weight" does not exist'),
        ('invalid input syntax for type integer: "Zebulon"', "invalid input syntax for type integer: •••"),
        ('new row for relation "parcel" violates check constraint "weighs"', 'relation "parcel" violates check '),
    ],
)
def test_a_column_is_nobodys_data_and_what_was_to_be_stored_in_it_is(text: str, kept: str) -> None:
    assert kept in scrub_foreign(text, names=names_of_code(DataError(text)))


@pytest.mark.parametrize(
    "error",
    [
        TypeError("'Zebulon' is no name"),
        KeyError("Zebulon"),
        ValueError("name 'Zebulon'"),
        ValueError("f() got an unexpected keyword argument 'Zebulon'"),  # as Python words another
        type("TypeError", (Exception,), {})("f() got an unexpected keyword argument 'Zebulon'"),  # by its name alone
    ],
)
def test_what_a_step_quotes_in_words_of_its_own_is_masked(error: Exception) -> None:
    assert "Zebulon" not in scrub_foreign(str(error), names=names_of_code(error))


def test_a_value_that_is_known_is_masked_wherever_a_name_may_stand() -> None:
    error = TypeError("f() got an unexpected keyword argument 'zebulon'")
    assert "zebulon" not in scrub_foreign(str(error), {"name": "Zebulon"}, names=names_of_code(error))


def test_public_fields_are_nobodys_data() -> None:
    payload = {"mode": "net_new", "patient": {"name": "Zebulon"}, "checkout": {"program": "body", "plan": "monthly"}}
    private = private_part(payload, {"mode", "checkout.program"})
    assert private == {"patient": {"name": "Zebulon"}, "checkout": {"plan": "monthly"}}


def test_it_keeps_text_short() -> None:
    assert len(scrub("word " * 1000)) == 500


def test_it_masks_what_is_cut_off_in_the_middle_too() -> None:
    assert "Zebulon" not in scrub("x" * 495 + "Zebulon", {"name": "Zebulon"})


def test_a_long_text_and_a_large_payload_take_no_time() -> None:
    """Bounded work, not a stopwatch: quadratic, this one takes minutes."""
    payload = {str(n): f"value {n}" for n in range(25_000)}
    assert scrub("nothing of it " * 300_000, payload).startswith("nothing of it")


def test_one_long_word_takes_no_time() -> None:
    """A page in base64, say: quadratic, these take minutes."""
    assert {scrub("m" * 20_000) for _ in range(100)} == {"m" * 500}


def test_frames_name_functions_and_causes_but_no_values() -> None:
    def fail(value: str) -> None:
        try:
            raise KeyError(value)
        except KeyError as error:
            raise ValueError(value) from error

    with pytest.raises(ValueError, match="canary") as raised:
        fail("canary-7193")
    text = frames(raised.value)
    assert "in fail" in text
    assert text.index("KeyError") < text.index("ValueError")
    assert "canary" not in text


PATIENT = {"name": "Anna Smithson", "phone": "+1 (202) 555-0123", "born": "1990-02-28", "height": 170, "zip": "10001"}


@pytest.mark.parametrize("value", ["ch_3PqR", "re-9", "INV/2026/000341", "f-000003", "ch_1702", "9f1c3b52-6d0e-4a8e"])
def test_what_reads_like_a_reference_is_kept(value: str) -> None:
    assert masked_reference(value, PATIENT) == value


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("Anna", ""),
        ("Miller", ""),  # a name, of whomever
        ("smithson9", ""),
        ("anna1990", ""),
        ("+12025550123", ""),
        ("p2025550123", ""),
        ("d19900228", ""),
        ("ch 9 of Anna", ""),
        ("a9@example.com", ""),
        ("170", ""),
        ("4711", ""),
        ("3025550199", "0199"),  # a number alone may be a refund's or somebody's telephone's
        ("1985-04-12", ""),
        ("x" * 101, ""),
        ("", ""),
        (None, ""),
        (["ch_9"], ""),
        ({"id": "ch_9"}, ""),
    ],
)
def test_of_anything_else_no_more_than_the_end_of_a_number_is(value: Any, kept: str) -> None:
    assert masked_reference(value, PATIENT) == f"•••{kept}"

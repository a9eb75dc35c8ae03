from typing import Any

import pytest

from workflows.redaction import frames, private_part, reference, scrub, scrub_foreign


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


def test_it_masks_quoted_values_in_text_that_is_not_ours() -> None:
    assert (
        scrub_foreign("invalid literal for int() with base 10: 'abc'") == "invalid literal for int() with base 10: •••"
    )


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
    assert reference(value, PATIENT) == value


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
    assert reference(value, PATIENT) == f"•••{kept}"

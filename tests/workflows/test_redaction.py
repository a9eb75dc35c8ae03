import json
from pathlib import Path
from typing import Any

import pytest

from workflows.errors import RetryableStepError
from workflows.redaction import frames, masked_reference, place, private_part, scrub


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
        ("nul \x00 and surrogate \ud800", "nul   and surrogate  "),
    ],
)
def test_it_masks_what_is_somebodys(text: str, expected: str) -> None:
    assert scrub(text, {"patient": {"names": ["Zebulon", "Smith"], "weight": 92.5, "sms": True}}) == expected


NAME = {"name": "Anna-Maria O'Müller van der Weiß", "answer": "i have had pain in my left knee", "cn": "张伟"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("anna, MULLER and Mu\u0308ller", "•••, ••• and •••"),
        ("WEISS", "•••"),
        ("The van is full", "The van is full"),  # a small word of the name
        (r'{"name": "M\u00fcller"}', '{"name": "•••"}'),
        (r"b'M\xc3\xbcller'", "b'•••'"),
        ("?name=Anna%2DMaria%20O%27M%C3%BCller", "?name=•••-••• O'•••"),
        ("?next=%2F%3Fname%3DM%25C3%25BCller", "?next=/?name=•••"),
        ("?name=Anna-Maria+Weiß", "?name=•••-•••+•••"),
        ("患者张伟拒绝", "患者•••拒绝"),
        ("It quotes: have had pain in my left kn", "It quotes: ••• kn"),
        ("50% of 100 %", "50% of ••• %"),
        ("2026-01-01 ERROR\nforged \x1b[2J", "••• ERROR forged  [2J"),
    ],
)
def test_it_masks_a_name_by_its_words_and_in_every_form(text: str, expected: str) -> None:
    assert scrub(text, NAME) == expected


SIZE = 50_000


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("m" * SIZE, "m" * SIZE),
        ("a@" * SIZE, "a " * SIZE),
        ("1 " + " (" * SIZE, [str(each) for each in range(SIZE // 8)]),
        ("%" + "25" * SIZE, "%" + "25" * SIZE),
        ("\\" * SIZE, "\\u0041" * (SIZE // 6)),
        ("e" + "\u0301\u0323" * SIZE, "e" + "\u0301\u0323" * SIZE),
        ("'" * SIZE, {str(n): f"value {n}" for n in range(SIZE // 8)}),
        ("ab " * SIZE, ["ab " * n for n in range(300)]),
    ],
    ids=lambda value: f"{str(value)[:8]}...",
)
def test_hostile_text_takes_no_time(text: str, known: Any) -> None:
    """Bounded work, not a stopwatch: quadratic, each takes an hour, and the worker holds the row as long."""
    assert len(scrub(text, known)) <= 500


def test_an_error_is_placed_where_a_step_has_raised_it() -> None:
    """And not in the library, or the engine, that it called."""
    with pytest.raises(json.JSONDecodeError) as raised:
        json.loads("Zebulon")
    with pytest.raises(TypeError) as refused:
        RetryableStepError(base_delay="Zebulon")  # type: ignore[arg-type]
    lines = Path(__file__).read_text().splitlines()
    (called,) = [number for number, line in enumerate(lines, 1) if line.strip().startswith("json.loads(")]
    assert place(raised.value) == f"tests/workflows/test_redaction.py:{called}"
    assert place(refused.value) == f"tests/workflows/test_redaction.py:{called + 2}"
    assert place(ValueError("Zebulon")) == ""


def test_public_fields_are_nobodys_data() -> None:
    payload = {"mode": "net_new", "patient": {"name": "Zebulon"}, "checkout": {"program": "body", "plan": "monthly"}}
    private = private_part(payload, {"mode", "checkout.program"})
    assert private == {"patient": {"name": "Zebulon"}, "checkout": {"plan": "monthly"}}


def test_it_keeps_text_short() -> None:
    assert len(scrub("word " * 1000)) == 500


def test_it_masks_what_is_cut_off_in_the_middle_too() -> None:
    assert "Zebulon" not in scrub("x" * 495 + "Zebulon", {"name": "Zebulon"})


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


@pytest.mark.parametrize("value", ["re-9", "INV/2026/000341", "ch_1702", "9f1c3b52-6d0e-4a8e"])
def test_what_reads_like_a_reference_is_kept(value: str) -> None:
    assert masked_reference(value, PATIENT) == value


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("Anna", ""),
        ("smithson9", ""),
        ("p2025550123", ""),
        ("d19900228", ""),
        ("ch 9 of Anna", ""),
        ("a9@example.com", ""),
        ("4711", ""),
        ("3025550199", "0199"),  # a number alone may be a refund's or somebody's telephone's
        ("1985-04-12", ""),
        ("x" * 101, ""),
        (None, ""),
    ],
)
def test_of_anything_else_no_more_than_the_end_of_a_number_is(value: Any, kept: str) -> None:
    assert masked_reference(value, PATIENT) == f"•••{kept}"

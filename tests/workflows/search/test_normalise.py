"""What staff type, and what a website sent, are the same text in the end."""

from __future__ import annotations

import pytest

from workflows.search import normalise
from workflows.search.search_keys import LONGEST_TEXT, SearchKey


@pytest.mark.parametrize(
    "text",
    [
        "jane.doe+web@example.com",
        "  Jane.Doe+WEB@Example.COM\n",
        "\u200bjane.doe+web@example.com\ufeff",
        "\uff4aane.doe+web\uff20example.com",  # full width
        "mailto:jane.doe+web@example.com",
        "Jane Doe <jane.doe+web@example.com>",
    ],
)
def test_an_email_address_is_the_same_however_it_is_written(text: str) -> None:
    assert normalise.email(text) == ["jane.doe+web@example.com"]


def test_dots_and_what_follows_a_plus_make_a_difference_and_how_accents_are_composed_does_not() -> None:
    written = ["jane.doe@example.com", "janedoe@example.com", "jane.doe+1@example.com"]
    assert len({normalise.email(text)[0] for text in written}) == 3
    assert normalise.email("jos\u00e9@example.com") == normalise.email("JOSE\u0301@example.com")


@pytest.mark.parametrize(
    "text", ["", " ", "jane", "@", "jane@", "@example.com", "a@b@c", "jane doe@example.com", "<@>"]
)
def test_what_is_no_email_address_has_no_reading(text: str) -> None:
    assert normalise.email(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "+15550102323",
        "+1 555.010.2323",
        "1 555 010 2323",
        "(555) 010-2323",
        "555\u2011010\u20112323",
        "555 010 2323 x12",
        "(555) 010-2323 ext. 4",
        "tel:+1-555-010-2323",
        "011 1 555 010 2323",
        "001 555 010 2323",
        "\uff15\uff15\uff15\uff10\uff11\uff10\uff12\uff13\uff12\uff13",
    ],
)
def test_a_phone_number_is_the_same_however_it_is_written(text: str) -> None:
    assert normalise.phone("1")(text)[0] == "15550102323"


def test_ten_digits_may_also_be_a_number_of_another_country() -> None:
    assert normalise.phone("1")("4712345678") == ["14712345678", "4712345678"]
    assert normalise.phone("1")("+4712345678") == ["4712345678"]
    assert normalise.phone("1")("442079460958") == ["442079460958"]


def test_another_country_may_be_the_one_that_is_left_out() -> None:
    british = normalise.phone("44")
    for text in ("+44 20 7946 0958", "020 7946 0958", "0044 20 7946 0958", "44 20 7946 0958"):
        assert british(text)[0] == "442079460958"


@pytest.mark.parametrize(
    "text", ["", "333", "#333", "1234567", "1" * 16, "jane@example.com", "555-CALL-NOW", "+", "+0123456789"]
)
def test_what_is_no_phone_number_has_no_reading(text: str) -> None:
    assert normalise.phone("1")(text) == []


@pytest.mark.parametrize("value", [None, 0, True, ["+15550102323"], {"a": 1}, "a" * LONGEST_TEXT + "@example.com"])
def test_what_is_no_one_value_or_too_long_is_no_search_key(value: object) -> None:
    assert SearchKey("x", normalise.email).read(value) == []
    assert SearchKey("x", normalise.phone()).read(value) == []


def test_a_number_is_read_as_its_text() -> None:
    assert SearchKey("x", normalise.phone()).read(15550102323) == ["15550102323"]
    assert SearchKey("x", normalise.plain).read(7.0) == ["7"]

"""Find, as support does when the phone rings: a key, what the patient says, Enter."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.conftest import Open
from tests.console.scenes import EMAIL, PHONE, submitted


def requests_of(page: Any) -> list[str]:
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    return urls


@pytest.mark.parametrize("typed", [EMAIL.upper(), "(555) 010-2323"])
def test_by_the_keyboard_alone_a_patient_is_found_and_no_address_says_whom(open_as: Open, typed: str) -> None:
    pk = submitted().pk
    page = open_as("support")
    urls = requests_of(page)
    page.keyboard.press("/")
    page.keyboard.type(typed)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/admin/workflows/workflow/{pk}/change/")
    assert not [url for url in urls if "lovelace" in url.lower() or PHONE[-4:] in url]
    assert "lovelace" not in page.title().lower()


def test_a_slash_is_typed_where_somebody_types_and_escape_leaves_the_box(open_as: Open) -> None:
    page = open_as("support")
    page.keyboard.press("/")
    page.keyboard.type("a/b")
    assert page.input_value("[data-find]") == "a/b"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.tagName") == "BODY"


def test_an_empty_search_puts_the_focus_on_the_box(open_as: Open) -> None:
    page = open_as("support", "/admin/find/")
    page.locator("[data-find]").press("Enter")
    page.wait_for_selector("#find-error")
    assert page.evaluate("document.activeElement.hasAttribute('data-find')")

"""Find, as support does when the phone rings: a key, what the patient says, Enter."""

from __future__ import annotations

import re
from typing import Any

from tests.console.conftest import Open
from tests.console.scenes import PHONE, submitted


def requests_of(page: Any) -> list[str]:
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    return urls


def test_by_the_keyboard_alone_a_patient_is_found_and_no_address_says_whom(open_as: Open) -> None:
    pk = submitted().pk
    page = open_as("support")
    urls = requests_of(page)
    page.keyboard.press("/")
    page.keyboard.type("(555) 010-2323")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/admin/workflows/workflow/{pk}/change/")
    assert not [url for url in urls if "lovelace" in url.lower() or PHONE[-4:] in url]
    assert "lovelace" not in page.title().lower()


def test_back_leads_to_what_was_found_until_somebody_signs_out(open_as: Open) -> None:
    submitted(), submitted()
    page = open_as("support")
    urls = requests_of(page)
    page.fill("#find", "(555) 010-2323")
    page.keyboard.press("Enter")
    page.wait_for_selector("#several")
    page.locator("#content tbody a").first.click()
    page.wait_for_selector("#to-tell")
    page.go_back()
    page.wait_for_selector("#several")
    assert page.locator("#content [data-find]").input_value() == "(555) 010-2323"
    page.fill("#content [data-find]", "Ada Lovelace")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Nothing found")
    page.go_back()
    page.wait_for_selector("#several")
    assert not [url for url in urls if "2323" in url or "lovelace" in url.lower()]
    page.click(".user summary")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/admin/logout/")
    page.go_back()
    page.wait_for_url(re.compile("/admin/login/.+search"))
    assert "2323" not in page.content()


def test_what_was_found_nowhere_is_replaced_by_what_is_typed_next(open_as: Open) -> None:
    page = open_as("support")
    page.keyboard.press("/")
    page.keyboard.type("Ada Lovelace")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Nothing found")
    page.wait_for_load_state()  # the browser gives the focus as soon as it has parsed the box, and the script selects
    page.keyboard.type("/33/4")  # as everywhere: to the box, which has the focus already
    assert page.locator("#content [data-find]").input_value() == "33/4"

"""Find, as support does when the phone rings: a key, what the patient says, Enter."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from onboarding.samples import Kind, sample
from onboarding.workflow import ONBOARDING
from tests.console.conftest import Open
from workflows.intake.submissions import enter
from workflows.postgres.jsonb import document_of

EMAIL = "canary-5b2e@example.com"


def sent() -> int:
    payload = sample(Kind.NET_NEW).payload
    patient = {**payload["patient"], "email": EMAIL, "phone": "+15550102323"}
    document = document_of({**payload, "patient": patient})
    return enter(ONBOARDING, idempotency_key=uuid.uuid4(), payload=document, submitted_by="web").id


def requests_of(page: Any) -> list[str]:
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    return urls


@pytest.mark.parametrize("typed", [EMAIL.upper(), "(555) 010-2323"])
def test_by_the_keyboard_alone_a_patient_is_found_and_no_address_says_whom(open_as: Open, typed: str) -> None:
    pk = sent()
    page = open_as("support")
    urls = requests_of(page)
    page.keyboard.press("/")
    page.keyboard.type(typed)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/admin/workflows/workflow/{pk}/change/")
    assert not [url for url in urls if "canary" in url.lower() or "2323" in url]
    assert "canary" not in page.title().lower()


def test_a_slash_is_typed_where_somebody_types_and_escape_leaves_the_box(open_as: Open) -> None:
    page = open_as("support")
    page.keyboard.press("/")
    page.keyboard.type("a/b")
    assert page.input_value("[data-find]") == "a/b"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.tagName") == "BODY"


def test_an_empty_search_puts_the_focus_on_the_box(open_as: Open) -> None:
    page = open_as("support", "/admin/find/")
    page.keyboard.press("Enter")
    page.wait_for_selector("#find-error")
    assert page.evaluate("document.activeElement.hasAttribute('data-find')")

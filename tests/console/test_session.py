"""The script of the console's pages in a browser: it warns before a session ends, and keeps a reason that was typed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.console.axe import findings
from tests.servers import Gunicorn
from tests.workflows import rows
from workflows.definition import definitions

PASSWORD = "correct horse battery"
TYPED = "They called and asked for"


@pytest.fixture(scope="module")
def server_environment() -> dict[str, str]:
    """Sessions end after twelve idle seconds."""
    return {"DJANGO_SETTINGS_MODULE": "tests.staff.short_sessions", "WORKFLOWS": "tests.workflows.rows.PARCEL"}


@pytest.fixture
def url(server: Gunicorn, settings: Any) -> Iterator[str]:
    """A page of a console with a failed workflow and two users."""
    settings.WORKFLOWS = ["tests.workflows.rows.PARCEL"]
    definitions.cache_clear()
    for name in ("ada", "bob"):
        User.objects.create_superuser(name, password=PASSWORD)
    yield f"http://127.0.0.1:{server.port}/admin/workflows/workflow/{rows.failed().pk}/retry/"
    definitions.cache_clear()


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    """A tab in which ada is signed in, on the page that asks for the reason of a retry."""
    context = browser.new_context()
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    page.goto(url)
    sign_in(page)
    yield page
    context.close()
    assert not wrong


def sign_in(page: Any, name: str = "ada") -> None:
    page.fill("[name=username]", name)
    page.fill("[name=password]", PASSWORD)
    with page.expect_navigation():
        page.press("[name=password]", "Enter")


def send(page: Any) -> None:
    page.check("[name=why][value=other]")
    page.click("#content button[type=submit]")


def lose_session(page: Any) -> None:
    """The browser forgets it, and the page hears nothing of that, after which it would leave by itself."""
    page.route("**/admin/session/", lambda route: route.abort())
    page.context.clear_cookies(name="sessionid")


def warning(page: Any) -> Any:
    return page.get_by_role("alert")


@pytest.mark.parametrize("focused", ["[name=reason]", ""])
def test_it_warns_and_one_key_keeps_the_session(page: Any, url: str, focused: str) -> None:
    if focused:
        page.focus(focused)
    warning(page).wait_for()
    assert "you will be signed out, because nothing was done here" in warning(page).inner_text()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Stay signed in"
    page.keyboard.press("Enter")
    warning(page).wait_for(state="detached")
    warning(page).wait_for()  # and warns once more
    assert page.url == url
    assert not findings(page)


def test_a_session_that_ends_leaves_the_page_and_the_reason_is_there_again(page: Any, url: str) -> None:
    page.fill("[name=reason]", TYPED)
    page.wait_for_url("**/admin/login/**", timeout=20000)
    assert "without activity" in page.inner_text("body")
    assert TYPED not in page.content()
    sign_in(page)
    assert page.url == url
    assert page.input_value("[name=reason]") == TYPED


def test_a_reason_sent_too_late_is_there_again_and_gone_when_it_was_taken(page: Any, url: str) -> None:
    page.fill("[name=reason]", TYPED)
    lose_session(page)
    send(page)
    page.wait_for_url("**/admin/login/**")
    assert "Nothing was done" in page.inner_text("body")
    sign_in(page)
    assert page.url == url
    assert page.input_value("[name=reason]") == TYPED
    send(page)
    page.wait_for_url("**/change/")
    assert page.evaluate("sessionStorage.length") == 0


def test_a_reason_is_not_for_the_next_user_nor_kept_after_a_sign_out(page: Any, url: str) -> None:
    page.fill("[name=reason]", TYPED)
    lose_session(page)
    page.goto(url)
    sign_in(page, "bob")
    assert page.input_value("[name=reason]") == ""
    assert page.evaluate("sessionStorage.length") == 0
    page.fill("[name=reason]", TYPED)
    assert page.evaluate("sessionStorage.length") == 1
    with page.expect_navigation():
        page.click("details.user summary")
        page.click("#logout-form button")
    assert page.evaluate("sessionStorage.length") == 0

"""A second factor in a browser, under the console's policy: a picture for an app, a passkey, recovery codes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from staff.enrolment import new_link
from tests.console.axe import findings
from tests.console.test_session import PASSWORD, sign_in
from tests.servers import Gunicorn

AUTHENTICATOR = {
    "options": {
        "protocol": "ctap2",
        "transport": "internal",
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
}


@pytest.fixture
def home(server: Gunicorn) -> str:
    """By name: a passkey is of a name, and not of an address."""
    return f"http://localhost:{server.port}"


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A tab of a machine that has passkeys."""
    context = browser.new_context()
    page = context.new_page()
    devtools = context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    devtools.send("WebAuthn.addVirtualAuthenticator", AUTHENTICATOR)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    yield page
    context.close()
    assert not wrong


def test_a_passkey_is_enrolled_by_a_link_and_signs_in_after_the_password(page: Any, home: str) -> None:
    user = User.objects.create_superuser("ada", password=PASSWORD)
    page.goto(home + new_link(user, by=None))
    sign_in(page)
    assert page.evaluate("document.querySelector('.factor-picture').naturalWidth") > 0
    assert findings(page) == []
    with page.expect_navigation():
        page.click("text=Use a passkey")
    assert page.locator(".factor-codes li").count() == 10
    assert findings(page) == []
    with page.expect_navigation():
        page.click("text=I have kept them")
    assert page.url == f"{home}/admin/"
    page.click("details.user summary")
    page.click("text=Log out")
    page.goto(f"{home}/admin/")
    sign_in(page)
    assert findings(page) == []
    with page.expect_navigation():
        page.click("text=Use a passkey")
    assert page.url == f"{home}/admin/"

"""The provider is asked again each hour, and may end a session at any time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import Client

from staff import oidc, single_sign_on, still_signed_in
from tests.staff.openid import ADA, SITE, Browser, OpenIdProvider, leads_to

pytestmark = pytest.mark.node

PAGE, END = "/admin/jsi18n/?page=1", "/admin/single-sign-on/end/"
HOUR, MINUTE = 3600, 60


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    ahead = [0.0]
    for module in (single_sign_on, still_signed_in):
        monkeypatch.setattr(module, "time", lambda: time.time() + ahead[0])

    def passes(seconds: float) -> None:
        ahead[0] += seconds

    return passes


@pytest.fixture
def browser(browser: Browser) -> Browser:
    browser.sign_in()
    return browser


def follow(browser: Browser) -> Any:
    """Open a page that asks the provider first; the answer to what it sends the browser back with."""
    asked = leads_to(browser.console.get(PAGE))
    assert "prompt=none" in asked
    return browser.console.get(browser.at_provider(asked).removeprefix(SITE))


def test_after_an_hour_a_page_asks_the_provider_and_goes_on(browser: Browser, passes: Any) -> None:
    passes(HOUR - MINUTE)
    assert browser.console.get(PAGE).status_code == 200
    passes(MINUTE)
    for extra in ({"X-Background": "refresh"}, {"Sec-Fetch-Mode": "cors"}):
        assert browser.console.get(PAGE, headers=extra).status_code == 200
    assert browser.console.post("/admin/session/").status_code == 200
    began = browser.console.session["session_began"]
    assert follow(browser)["Location"] == PAGE
    assert browser.console.get(PAGE).status_code == 200
    assert browser.console.session["session_began"] == began  # eight hours are eight hours
    assert UserSession.objects.count() == 1


def test_a_no_ends_the_session(browser: Browser, passes: Any, provider: OpenIdProvider) -> None:
    passes(HOUR)
    browser.leave_provider(provider.issuer)
    assert "has ended your session" in browser.said(follow(browser))
    assert not browser.is_signed_in
    assert not UserSession.objects.exists()


def test_who_has_lost_the_last_group_is_out_and_a_changed_one_counts_at_once(
    browser: Browser, passes: Any, provider: OpenIdProvider
) -> None:
    passes(HOUR)
    provider.tell(users={"ada": {"groups": ["onramp-leads"]}})
    assert follow(browser)["Location"] == PAGE
    assert [group.name for group in User.objects.get().groups.all()] == ["support lead"]
    passes(HOUR)
    provider.tell(users={"ada": {"groups": []}})
    assert "gives you no group" in browser.said(follow(browser))
    assert not browser.is_signed_in


def test_another_user_at_the_provider_ends_the_session_and_gets_none(
    browser: Browser, passes: Any, provider: OpenIdProvider
) -> None:
    provider.tell(users={"ada": ADA, "bob": ADA})
    browser.web.cookies.clear()
    bob = Browser()
    bob.web = browser.web
    bob.sign_in("bob")
    passes(HOUR)
    assert "another user" in browser.said(follow(browser))
    assert not browser.is_signed_in


def test_while_the_provider_is_away_it_goes_on_and_asks_every_five_minutes(
    browser: Browser, passes: Any, provider: OpenIdProvider, caplog: pytest.LogCaptureFixture
) -> None:
    passes(HOUR)
    provider.stop()
    try:
        for _ in range(5):
            caplog.clear()
            assert b"http-equiv" not in browser.console.get(PAGE).content
            assert "Single sign-on" in caplog.text
            caplog.clear()
            assert browser.console.get(PAGE).status_code == 200
            assert "Single sign-on" not in caplog.text
            passes(5 * MINUTE)
    finally:
        provider.start()
    assert "prompt=none" in leads_to(browser.console.get(PAGE))


def test_a_browser_that_does_not_come_back_from_a_provider_that_is_up_is_out(browser: Browser, passes: Any) -> None:
    """A user whom the provider would refuse could keep their browser from asking it."""
    passes(HOUR)
    for _ in range(3):
        assert "prompt=none" in leads_to(browser.console.get(PAGE))
        assert b"http-equiv" not in browser.console.get(PAGE).content
        passes(5 * MINUTE)
    assert "has ended your session" in browser.said(browser.console.get(PAGE))


def test_a_browser_that_opens_no_page_is_out_after_two_hours(browser: Browser, passes: Any) -> None:
    passes(2 * HOUR - MINUTE)
    for minutes in (1, 5, 5, 5):
        assert browser.console.post("/admin/session/").status_code == 200
        passes(minutes * MINUTE)
    assert browser.console.post("/admin/session/").status_code == 401
    assert not browser.is_signed_in


def test_an_error_that_nobody_was_asked_for_ends_no_session(browser: Browser) -> None:
    """A link that somebody else sends."""
    for state in ("", "x"):
        browser.console.get("/admin/single-sign-on/callback/", {"error": "login_required", "state": state})
    assert browser.is_signed_in


# --- Back-channel logout ------------------------------------------------------------------------


def _lose_the_database(session: UserSession) -> None:
    raise OperationalError


def test_the_provider_ends_the_session_that_it_names_and_no_other(
    browser: Browser, provider: OpenIdProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Browser()
    elsewhere.sign_in()
    browser.leave_provider(provider.issuer)
    sent = provider.logouts.get(timeout=10)
    with monkeypatch.context() as patch:
        patch.setattr(UserSession, "end", _lose_the_database)
        with pytest.raises(OperationalError):  # it does not count: the provider sends it again
            Client().post(END, sent)
    for _ in range(2):  # the second is refused, and ends nothing more
        answer = Client(enforce_csrf_checks=True).post(END, sent)
        assert not browser.is_signed_in
        assert elsewhere.is_signed_in
    assert answer.status_code == 400
    assert UserSession.objects.count() == 1


def test_no_other_token_ends_a_session(browser: Browser, provider: OpenIdProvider, monkeypatch: Any) -> None:
    browser.leave_provider(provider.issuer)
    sent = provider.logouts.get(timeout=10)["logout_token"]
    again = Browser()
    again.sign_in()
    claims = oidc.claims_of(sent, needs=())
    for wrong in ({**claims, "nonce": "x"}, {**claims, "events": {}}, {**claims, "sub": None, "sid": None}):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(oidc, "claims_of", lambda *a, made=wrong, **k: made)
            assert Client().post(END, {"logout_token": "x"}).status_code == 400
    for token in ("", "x", sent[:-4] + "AAAA"):
        assert Client().post(END, {"logout_token": token}).status_code == 400
    assert Client().get(END).status_code == 405
    assert again.is_signed_in
    everywhere = {**claims, "sid": None, "jti": "new"}
    monkeypatch.setattr(oidc, "claims_of", lambda *a, **k: everywhere)
    assert Client().post(END, {"logout_token": "x"}).status_code == 200
    assert not again.is_signed_in

"""Single sign-on with a certified OpenID provider, over real HTTP."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from allauth.socialaccount.models import SocialAccount, SocialToken
from allauth.usersessions.models import UserSession
from axes.models import AccessFailureLog, AccessLog
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.utils import timezone

from staff import oidc
from staff.extension import break_glass_works, no_break_glass
from tests.config.test_prometheus import RULES
from tests.staff.conftest import PASSWORD, sign_in
from tests.staff.openid import ADA, CALLBACK, SITE, START, Browser, OpenIdProvider
from tests.staff.test_second_factor import code
from workflows.features.doctor.examination import examine
from workflows.features.doctor.findings import Level

pytestmark = pytest.mark.node


def groups(name: str = "ada") -> set[str]:
    return set(User.objects.get(username=name).groups.values_list("name", flat=True))


def test_a_new_user_gets_in_with_the_groups_of_the_provider_and_nothing_of_theirs_is_kept(browser: Browser) -> None:
    answer = browser.sign_in()
    assert (answer.status_code, answer["Location"]) == (302, "/admin/jsi18n/")
    assert browser.is_signed_in
    ada = User.objects.get()
    assert (ada.username, ada.is_staff, ada.is_superuser, ada.has_usable_password()) == ("ada", True, False, False)
    assert groups() == {"support"}
    account = SocialAccount.objects.get()
    assert (account.user, account.uid, account.extra_data) == (ada, "ada", {})
    assert not SocialToken.objects.exists()
    assert AccessLog.objects.get().username == "ada"
    assert UserSession.objects.get().data["sid"]


def test_it_asks_with_pkce_a_nonce_and_a_state(browser: Browser) -> None:
    asked = {name: value for name, (value,) in parse_qs(urlsplit(browser.start()["Location"]).query).items()}
    assert asked["code_challenge_method"] == "S256"
    assert {"code_challenge", "nonce", "state", "max_age"} <= asked.keys()
    assert (asked["response_type"], asked["redirect_uri"]) == ("code", SITE + CALLBACK)


def test_nothing_in_the_address_changes_what_is_asked_or_where_it_leads(browser: Browser) -> None:
    answer = browser.console.get(
        START, {"next": "https://evil.example/", "process": "connect", "scope": "admin", "auth_params": "prompt=none"}
    )
    assert not {"admin", "none"} & set(re.split(r"\W+", answer["Location"]))
    back = browser.at_provider(answer["Location"])
    assert browser.console.get(back.removeprefix(SITE))["Location"] == "/admin/"
    assert browser.console.post(START).status_code == 405


@pytest.mark.parametrize(("site", "begins"), [("none", True), ("same-origin", True), ("cross-site", False)])
def test_a_link_of_another_site_signs_nobody_in_by_itself(browser: Browser, site: str, begins: bool) -> None:
    answer = browser.console.get(START, {"next": "/admin/find/"}, headers={"Sec-Fetch-Site": site})
    assert (answer["Location"] != "/admin/login/?next=/admin/find/") == begins


def test_an_account_of_before_is_linked_once_by_its_name_and_then_by_what_the_provider_calls_it(
    browser: Browser, provider: OpenIdProvider, ada: User
) -> None:
    ada.groups.add(Group.objects.get(name="auditor"))
    browser.sign_in()
    assert SocialAccount.objects.get().user == ada
    assert groups() == {"support", "auditor"}  # of a group that OIDC_GROUPS lacks the provider knows nothing
    User.objects.update(username="adele")
    assert Browser().sign_in()["Location"] == "/admin/jsi18n/"
    assert User.objects.get() == ada
    # Somebody else who gets that name at the provider gets nothing of hers.
    User.objects.update(username="bob")
    provider.tell(users={"bob": ADA})
    other = Browser()
    assert "user name is another account" in other.said(other.sign_in("bob"))
    assert SocialAccount.objects.count() == User.objects.count() == 1


def test_a_name_that_differs_from_another_in_its_capitals_only_is_taken(
    browser: Browser, ada: User, settings: Any
) -> None:
    User.objects.update(username="Ada")
    assert "user name is another account" in browser.said(browser.sign_in())
    assert User.objects.count() == 1


def test_a_slash_more_in_the_issuer_is_the_same_provider(browser: Browser, settings: Any) -> None:
    browser.sign_in()
    settings.OIDC_ISSUER += "/"
    Browser().sign_in()
    assert SocialAccount.objects.count() == 1


def test_no_superuser_gets_in_by_a_name_nor_by_having_become_one(browser: Browser, ada: User) -> None:
    User.objects.update(is_superuser=True)
    assert "another account" in browser.said(browser.sign_in())
    User.objects.update(is_superuser=False)
    browser.sign_in()
    User.objects.update(is_superuser=True)
    again = Browser()
    assert "cannot sign in by single sign-on" in again.said(again.sign_in())
    assert not again.is_signed_in


def test_no_break_glass_account_is_the_providers(browser: Browser, ada: User, settings: Any) -> None:
    settings.OIDC_BREAK_GLASS = ["ada"]
    assert "another account" in browser.said(browser.sign_in())
    settings.OIDC_BREAK_GLASS = []
    browser.sign_in()
    settings.OIDC_BREAK_GLASS = ["ada"]
    again = Browser()
    assert "cannot sign in by single sign-on" in again.said(again.sign_in())


def test_no_account_that_is_not_of_the_staff_is_linked(browser: Browser, ada: User) -> None:
    User.objects.update(is_staff=False)
    assert "another account" in browser.said(browser.sign_in())


def test_groups_change_both_ways_and_without_one_nobody_gets_in(browser: Browser, provider: OpenIdProvider) -> None:
    browser.sign_in()
    provider.tell(users={"ada": {"groups": ["onramp-leads", "constructor"]}})
    Browser().sign_in()
    assert groups() == {"support lead"}
    provider.tell(users={"ada": {"groups": ["staff"]}, "bob": {"groups": "onramp-supp"}, "eve": {}})
    for name in ("ada", "bob", "eve"):
        none_left = Browser()
        assert "gives you no group" in none_left.said(none_left.sign_in(name))
        assert not none_left.is_signed_in
    assert groups() == set()
    assert User.objects.get().username == "ada"
    changes = list(LogEntry.objects.order_by("id").values_list("change_message", flat=True))
    assert changes[1:] == [
        "Groups by single sign-on: +support.",
        "Groups by single sign-on: +support lead, -support.",
        "Groups by single sign-on: -support lead.",
    ]


def test_a_user_whom_an_administrator_has_put_out_does_not_get_in(browser: Browser) -> None:
    browser.sign_in()
    for out in ({"is_staff": False}, {"is_staff": True, "is_active": False}):
        User.objects.update(**out)
        again = Browser()
        assert "cannot sign in" in again.said(again.sign_in())
    assert not browser.is_signed_in


def test_a_user_who_does_not_agree_is_back_at_the_sign_in(browser: Browser, provider: OpenIdProvider) -> None:
    provider.tell(asks=True)
    assert "did not work" in browser.said(browser.sign_in(agrees=False))
    assert browser.sign_in().status_code == 302
    assert browser.is_signed_in


# --- What is sent by somebody else, or twice ----------------------------------------------------


def test_an_answer_counts_once_and_in_the_browser_that_asked(browser: Browser) -> None:
    back = browser.at_provider(browser.start()["Location"]).removeprefix(SITE)
    eve = Browser()
    assert "did not work" in eve.said(eve.console.get(back))  # a code that was stolen, or that is to sign in another
    assert "did not work" in eve.said(eve.console.get(back.replace("code=", "code=x&no=")))
    assert browser.console.get(back)["Location"] == "/admin/jsi18n/"
    browser.console.logout()
    assert "did not work" in browser.said(browser.console.get(back))
    assert not browser.is_signed_in
    assert not eve.is_signed_in


def test_the_code_of_another_question_is_refused(browser: Browser) -> None:
    """A code that Eve was given, with the state of Ada's own question: PKCE binds the code to Eve's."""
    eve = Browser()
    eves = parse_qs(urlsplit(eve.at_provider(eve.start()["Location"])).query)
    adas = parse_qs(urlsplit(browser.at_provider(browser.start()["Location"])).query)
    answer = browser.console.get(CALLBACK, {"code": eves["code"][0], "state": adas["state"][0]})
    assert "did not work" in browser.said(answer)


@pytest.mark.parametrize("clock", [-600, 600])
def test_clocks_ten_minutes_apart_are_no_error(browser: Browser, provider: OpenIdProvider, clock: int) -> None:
    provider.tell(clock=clock)
    assert browser.sign_in()["Location"] == "/admin/jsi18n/"
    assert browser.is_signed_in


def test_a_token_that_is_over_is_refused_with_a_sentence(
    browser: Browser, provider: OpenIdProvider, caplog: pytest.LogCaptureFixture
) -> None:
    back = browser.at_provider(browser.start()["Location"])
    provider.tell(clock=-3 * 3600)
    assert "did not work" in browser.said(browser.console.get(back.removeprefix(SITE)))
    assert "compare the provider's clock with ours" in caplog.text


# --- The provider is away -----------------------------------------------------------------------


def test_a_provider_that_is_down_or_hangs_is_a_sentence_within_five_seconds(browser: Browser, process: Any) -> None:
    for away in (process.hang, process.stop):
        back = browser.at_provider(browser.start()["Location"]).removeprefix(SITE)
        away()
        for ask in (browser.start, lambda: browser.console.get(back)):  # noqa: B023 (at once)
            oidc._kept_document.cache_clear()
            began = time.monotonic()
            assert "does not answer" in browser.said(ask())
            assert time.monotonic() - began < 6
        if away == process.stop:
            process.start()
        else:
            process.stop()
            process.start()


@pytest.mark.django_db(transaction=True)
def test_many_sign_in_at_once(provider: OpenIdProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times as many sign-ins as users: the same user for the first time twice at once, too."""
    monkeypatch.setattr(oidc, "AT_MOST", 60)  # the provider has the same cores
    monkeypatch.setattr(oidc, "TO_CONNECT", 20)
    provider.tell(users={f"user{number}": ADA for number in range(50)})

    def one(number: int) -> bool:
        browser = Browser()
        try:
            browser.sign_in(f"user{number % 50}")
            return browser.is_signed_in
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(one, range(200)))
    assert User.objects.count() == SocialAccount.objects.count() == 50


# --- Passwords ----------------------------------------------------------------------------------


def test_with_single_sign_on_passwords_are_off_and_guessing_tells_nothing(provider: OpenIdProvider, ada: User) -> None:
    right, wrong = sign_in().content.decode(), sign_in(password="guess").content.decode()
    token = re.compile(r'name="csrfmiddlewaretoken" value="[^"]*"')
    assert token.sub("", right) == token.sub("", wrong)
    assert "Sign in with single sign-on" in right
    assert AccessFailureLog.objects.count() == 2


def test_a_break_glass_account_gets_in_and_that_is_an_alert(
    provider: OpenIdProvider, ada: User, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.OIDC_BREAK_GLASS = ["ada"]
    secret = generate_totp_secret()
    TOTP.activate(ada, secret)
    browser = Browser()
    browser.console.post("/admin/login/", {"username": "ada", "password": PASSWORD}, REMOTE_ADDR="192.0.2.1")
    assert not browser.is_signed_in
    browser.console.post("/admin/second-factor/", {"code": code(secret)}, REMOTE_ADDR="192.0.2.1")
    assert browser.is_signed_in
    assert "CRITICAL" in caplog.text
    assert "Break-glass: ada has signed in with a password, from 192.0.2.1." in caplog.text
    assert LogEntry.objects.get().change_message == "Signed in with a password, as a break-glass account."


def break_glass_sign_ins() -> str:
    (number,) = re.findall(r"(?m)^onramp_break_glass_sign_ins (\S+)$", Client().get("/metrics").content.decode())
    return str(number)


def test_each_use_of_a_break_glass_account_is_counted_for_an_hour_for_the_alert_and_the_doctor(
    ada: User, settings: Any
) -> None:
    settings.DEBUG, settings.OIDC_ISSUER, settings.OIDC_BREAK_GLASS = True, "https://sso.example.com", ["ada", "root"]
    (alert,) = re.findall(r"expr: (.*break_glass.*)", RULES.read_text())
    assert alert == "max(onramp_break_glass_sign_ins) > 0"
    AccessLog.objects.create(username="eve")
    assert (break_glass_sign_ins(), list(no_break_glass())) == ("0.0", [])
    secret = generate_totp_secret()
    TOTP.activate(ada, secret)
    for _ in range(2):
        client = Client()
        client.post("/admin/login/", {"username": "ada", "password": PASSWORD})
        client.post("/admin/second-factor/", {"code": code(secret)})
        cache.clear()  # else a code counts once
    assert break_glass_sign_ins() == "2.0"
    (finding,) = [each for each in examine() if "in the last hour" in each.what]
    assert (finding.level, finding.about) == (Level.CRITICAL, "break-glass")
    AccessLog.objects.update(attempt_time=timezone.now() - timedelta(minutes=61))
    assert (break_glass_sign_ins(), list(no_break_glass())) == ("0.0", [])
    AccessLog.objects.update(attempt_time=timezone.now())
    settings.OIDC_ISSUER = ""  # where everybody has a password it says nothing
    assert break_glass_sign_ins() == "0.0"


def test_the_doctor_says_whether_a_break_glass_account_would_work(ada: User, settings: Any) -> None:
    assert not list(break_glass_works())
    settings.OIDC_ISSUER = "https://sso.example.com"
    assert "names no account" in next(break_glass_works()).what
    settings.OIDC_BREAK_GLASS = ["ada"]
    assert "has no second factor" in next(break_glass_works()).what
    TOTP.activate(ada, generate_totp_secret())
    assert not list(break_glass_works())
    User.objects.update(is_staff=False)
    assert "ada cannot sign in" in next(break_glass_works()).what


def test_without_single_sign_on_it_has_no_page(db: None) -> None:
    assert Browser().console.get(START).status_code == 404
    assert Browser().console.get(CALLBACK).status_code == 404

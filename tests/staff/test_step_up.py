"""Before what weighs users show that it is them, and what they sent without is not done."""

from __future__ import annotations

import time
from typing import Any

import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from staff import single_sign_on, step_up
from staff.step_up import ASK_FIRST
from tests.staff.conftest import PASSWORD
from tests.staff.openid import SITE, Browser, OpenIdProvider, leads_to
from tests.staff.test_second_factor import code
from tests.workflows import rows
from workflows.models import Access, Workflow

MINUTE = 60


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Any:
    ahead = [0.0]
    for module in (step_up, single_sign_on):
        monkeypatch.setattr(module, "time", lambda: time.time() + ahead[0])

    def passes(seconds: float) -> None:
        ahead[0] += seconds

    return passes


@pytest.fixture
def lead(ada: User) -> Client:
    ada.groups.add(Group.objects.get(name="support lead"))
    client = Client()
    client.force_login(ada)
    return client


def reveal_page() -> str:
    return f"/admin/workflows/workflow/{rows.failed().pk}/reveal/"


def confirm(client: Client, back: str, **sent: str) -> Any:
    return client.post(reverse("step_up"), sent, query_params={"next": back}, REMOTE_ADDR="192.0.2.1")


def asks(answer: Any) -> bool:
    return bool(answer.status_code == 302 and answer["Location"].startswith("/admin/confirm/?next="))


def test_who_has_just_signed_in_is_not_asked_and_ten_minutes_later_before_the_form_opens(
    lead: Client, passes: Any
) -> None:
    page = reveal_page()
    passes(10 * MINUTE - 5)
    assert lead.get(page).status_code == 200
    passes(5)
    answer = lead.get(f"{page}?x=1")
    assert answer["Location"] == f"/admin/confirm/?next={page.replace('/', '%2F')}%3Fx%3D1"
    asked = lead.get(answer["Location"]).content.decode()
    assert ('type="password"' in asked, "cannot be taken back" in asked) == (True, False)
    assert confirm(lead, page, password=PASSWORD)["Location"] == page
    assert lead.get(page).status_code == 200
    passes(10 * MINUTE)
    assert asks(lead.get(page))


def test_a_form_that_is_sent_without_does_nothing_then_nor_later(lead: Client, passes: Any) -> None:
    workflow = rows.failed()
    page = f"/admin/workflows/workflow/{workflow.pk}/reveal/"
    form = {"fields_asked": ["patient.email"], "reason": "They called."}
    passes(10 * MINUTE)
    answer = lead.post(page, form, headers={"Referer": f"{SITE}{page}"})
    assert asks(answer)
    assert "Nothing was done" in lead.get(answer["Location"]).content.decode()
    assert 'data-user=""' in lead.get(answer["Location"]).content.decode()  # so what was typed is kept
    assert confirm(lead, page, password=PASSWORD)["Location"] == page
    assert not Access.objects.filter(kind="revealed").exists()


def test_cancelling_asks_those_who_may_cancel_a_charged_one(lead: Client, ada: User, passes: Any) -> None:
    workflow = rows.retrying()
    page = f"/admin/workflows/workflow/{workflow.pk}/cancel/"
    passes(10 * MINUTE)
    assert asks(lead.get(page))
    assert asks(lead.post(page, {"reason": "Twice."}, headers={"Referer": f"{SITE}{page}"}))
    assert Workflow.objects.get(pk=workflow.pk).status == Workflow.Status.PENDING
    ada.groups.set([Group.objects.get(name="support")])
    assert lead.get(page).status_code == 200


def test_whoever_gives_rights_or_lets_many_fail_is_asked(lead: Client, ada: User, passes: Any) -> None:
    passes(10 * MINUTE)
    for page in ("auth/user/add", "auth/user/1/change", "auth/user/1/password", "auth/group/1/change"):
        assert asks(lead.get(f"/admin/{page}/"))
    assert asks(lead.post("/admin/workflows/service/parcel/let_fail/"))
    for page in ("manualtask/1/confirm", "workflow/1/confirm_retry"):
        assert asks(lead.get(f"/admin/workflows/{page}/"))


def test_the_pages_that_ask_first_are_pages_of_the_console(db: None) -> None:
    names = {f"admin:{pattern.name}" for pattern in _patterns(admin.site.urls[0])}
    assert set(ASK_FIRST) <= names


def _patterns(urls: Any) -> list[Any]:
    return [each for url in urls for each in (_patterns(url.url_patterns) if hasattr(url, "url_patterns") else [url])]


def test_many_are_cancelled_only_by_who_has_confirmed(lead: Client, ada: User, passes: Any) -> None:
    passes(10 * MINUTE)
    for verb, first in (("cancel", True), ("retry", False)):
        operation = rows.bulk_operation(ada, rows.retrying(), verb=verb)
        assert asks(lead.get(reverse("admin:workflows_bulkoperation_start", args=[operation.pk]))) == first


@pytest.mark.parametrize(
    "name", sorted({*ASK_FIRST} - {"admin:workflows_bulkoperation_start", "admin:password_change"})
)
def test_each_of_them_asks_for_a_get_and_for_a_post(name: str, ada: User, passes: Any) -> None:
    ada.is_superuser = True
    ada.save()
    client = Client()
    client.force_login(ada)
    passes(10 * MINUTE)
    page = reverse(name, args=[] if name.endswith(("_add", ":sessions")) else ["1"])
    assert asks(client.get(page))
    assert asks(client.post(page))
    assert client.get(page, headers={"X-Background": "refresh"}).status_code == 302
    client.logout()
    assert client.get(page)["Location"].startswith("/admin/login/")


def test_wrong_answers_count_as_wrong_passwords_and_lead_nowhere_else(lead: Client, ada: User, passes: Any) -> None:
    page = reveal_page()
    passes(10 * MINUTE)
    assert "not your password" in confirm(lead, page, password="guess").content.decode()
    assert asks(lead.get(page))
    assert confirm(lead, "https://evil.example/", password=PASSWORD)["Location"] == "/admin/"
    for _ in range(4):
        confirm(lead, page, password="guess")
    assert confirm(lead, page, password=PASSWORD).status_code == 429
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = lead.cookies
    assert confirm(strict, page, password=PASSWORD).status_code == 403
    assert Client().get(reverse("step_up"))["Location"] == "/admin/login/"


def test_who_has_a_second_factor_is_asked_for_it_and_the_password_is_not_enough(
    lead: Client, ada: User, passes: Any
) -> None:
    secret = generate_totp_secret()
    TOTP.activate(ada, secret)
    page = reveal_page()
    passes(10 * MINUTE)
    assert confirm(lead, page, password=PASSWORD).status_code == 200
    assert asks(lead.get(page))
    used = code(secret)
    assert confirm(lead, page, code=used)["Location"] == page
    assert lead.get(page).status_code == 200
    passes(10 * MINUTE)
    assert confirm(lead, page, code=used).status_code == 200  # it counts once
    assert asks(lead.get(page))
    assert confirm(lead, page, credential="{}").status_code == 200


# --- With single sign-on ------------------------------------------------------------------------


@pytest.mark.node
class TestBySingleSignOn:
    @pytest.fixture
    def browser(self, browser: Browser, provider: OpenIdProvider, passes: Any) -> Browser:
        provider.tell(users={"ada": {"groups": ["onramp-leads"]}})
        browser.sign_in()
        return browser

    def test_the_provider_asks_again_who_they_are(self, browser: Browser, passes: Any) -> None:
        page = reveal_page()
        assert browser.console.get(page).status_code == 200  # just signed in, there, too
        passes(10 * MINUTE)
        asked = leads_to(browser.console.get(browser.console.get(page)["Location"]))
        assert "max_age=0" in asked
        back = browser.at_provider(asked)
        assert browser.console.get(back.removeprefix(SITE))["Location"] == page
        assert browser.console.get(page).status_code == 200

    def test_a_sign_in_that_the_provider_did_not_ask_for_does_not_count(self, browser: Browser, passes: Any) -> None:
        """Somebody takes `max_age=0` out of the address: the provider, where Ada is signed in, asks nothing."""
        time.sleep(4)
        page = reveal_page()
        passes(10 * MINUTE)
        asked = leads_to(browser.console.get(browser.console.get(page)["Location"]))
        back = browser.at_provider(asked.replace("&max_age=0", "&max_age=9999").replace("&prompt=login", ""))
        answer = browser.console.get(back.removeprefix(SITE), follow=True)
        assert "did not ask you who you are" in answer.content.decode()
        assert asks(browser.console.get(page))

    def test_an_answer_that_is_used_late_counts_from_when_it_was_given(self, browser: Browser, passes: Any) -> None:
        page = reveal_page()
        passes(10 * MINUTE)
        asked = leads_to(browser.console.get(browser.console.get(page)["Location"]))
        browser.at_provider(asked)
        passes(10 * MINUTE)
        time.sleep(4)
        again = browser.at_provider(asked.replace("&max_age=0", "&max_age=9999").replace("&prompt=login", ""))
        assert browser.console.get(again.removeprefix(SITE))["Location"] == page
        passes(10 * MINUTE - 3)
        assert asks(browser.console.get(page))

    def test_another_user_there_ends_the_session(self, browser: Browser, passes: Any, provider: OpenIdProvider) -> None:
        provider.tell(users={**provider.state["users"], "bob": {"groups": ["onramp-leads"]}})
        page = reveal_page()
        passes(10 * MINUTE)
        asked = leads_to(browser.console.get(browser.console.get(page)["Location"]))
        browser.web.cookies.clear()
        back = browser.at_provider(asked, "bob").removeprefix(SITE)
        assert "another user" in browser.said(browser.console.get(back))
        assert not browser.is_signed_in

    def test_an_old_session_of_the_provider_is_no_proof(self, browser: Browser, passes: Any) -> None:
        time.sleep(4)
        page, again = reveal_page(), Browser()
        again.web = browser.web
        again.sign_in()
        passes(10 * MINUTE - 3)
        assert asks(again.console.get(page))

    def test_while_the_provider_is_away_nothing_that_asks_first_is_done_and_the_rest_goes_on(
        self, browser: Browser, passes: Any, provider: OpenIdProvider
    ) -> None:
        page = reveal_page()
        passes(10 * MINUTE)
        provider.stop()
        try:
            answer = browser.console.get(page, follow=True)
        finally:
            provider.start()
        assert answer.redirect_chain[-1][0] == "/admin/"
        assert "does not answer" in answer.content.decode()
        assert browser.is_signed_in

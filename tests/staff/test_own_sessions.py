"""The page of a user's own sessions, and what they end there."""

from __future__ import annotations

import re
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client

from staff.own_sessions import browser_of
from tests.staff.conftest import PASSWORD
from tests.staff.openid import Browser

PAGE = "/admin/sessions/"
FIREFOX = "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:145.0) Gecko/20100101 Firefox/145.0"
CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
SAFARI = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 Version/26.0 Mobile Safari/604.1"


def signed_in(
    agent: str = CHROME, address: str = "192.0.2.1", *, name: str = "ada", password: str = PASSWORD
) -> Client:
    client = Client(headers={"user-agent": agent}, REMOTE_ADDR=address)
    client.post("/admin/login/", {"username": name, "password": password})
    return client


def is_signed_in(client: Client) -> bool:
    return client.get("/admin/jsi18n/").status_code == 200


def listed(client: Client) -> list[str]:
    """The lines of the page, without its first, which names the columns."""
    rows = re.findall(r"<tr>(.*?)</tr>", client.get(PAGE).content.decode(), re.DOTALL)[1:]
    return [" ".join(re.sub("<[^>]*>", " ", row).split()) for row in rows]


def test_it_says_where_and_since_when_this_one_first(ada: User) -> None:
    signed_in(FIREFOX, "192.0.2.7")
    here = signed_in()
    first, second = listed(here)
    assert re.fullmatch(r"Chrome on Linux 192\.0\.2\.1( \d{4}-\d\d-\d\d \d\d:\d\d UTC){2} This one: log out", first)
    assert second.startswith("Firefox on Windows 192.0.2.7 20")


def test_one_is_ended_or_all_others_and_that_is_on_record(ada: User) -> None:
    here, other, third = signed_in(), signed_in(FIREFOX), signed_in(SAFARI)
    answer = here.post(PAGE, {"session": UserSession.objects.get(user_agent=FIREFOX).pk}, follow=True)
    assert "The session was ended." in answer.content.decode()
    assert [is_signed_in(each) for each in (here, other, third)] == [True, False, True]
    signed_in(FIREFOX)
    assert "2 sessions were ended." in here.post(PAGE, {"session": "others"}, follow=True).content.decode()
    assert [is_signed_in(each) for each in (here, third)] == [True, False]
    assert Session.objects.count() == UserSession.objects.count() == len(listed(here)) == 1
    assert [each.change_message for each in LogEntry.objects.order_by("id")] == [
        "Other sessions of their own ended: 1.",
        "Other sessions of their own ended: 2.",
    ]


@pytest.mark.parametrize("which", ["", "x", "\x00", "٣٤", "9" * 30, "-1"])
def test_neither_this_one_nor_that_of_somebody_else_nor_none_is_ended(ada: User, which: str) -> None:
    User.objects.create_user("bob", password=PASSWORD, is_staff=True)
    here, bobs = signed_in(), signed_in(name="bob")
    for sent in (which, *UserSession.objects.values_list("pk", flat=True)):
        assert "Nothing was ended" in here.post(PAGE, {"session": sent}, follow=True).content.decode()
    assert is_signed_in(here)
    assert is_signed_in(bobs)
    assert not LogEntry.objects.exists()


def test_what_has_ended_otherwise_is_not_listed(ada: User, settings: Any) -> None:
    here, other = signed_in(), signed_in(FIREFOX)
    assert len(listed(here)) == 2
    new = "a horse of another colour"
    here.post("/admin/password_change/", {"old_password": PASSWORD, "new_password1": new, "new_password2": new})
    assert len(listed(here)) == 1
    assert not is_signed_in(other)
    idle = signed_in(password=new)
    assert len(listed(here)) == 2
    session = idle.session
    session["session_seen"] = 0
    session.save()
    assert len(listed(here)) == 1


def test_a_browser_is_named_for_people() -> None:
    assert [browser_of(agent) for agent in (SAFARI, f"{CHROME} Edg/142.0", "curl/8.5", "")] == [
        "Safari on iPhone",
        "Edge on Linux",
        "Another browser on an unknown system",
        "Another browser on an unknown system",
    ]


@pytest.mark.node
def test_users_of_single_sign_on_have_it_too(browser: Browser) -> None:
    other = Browser()
    other.sign_in()
    browser.sign_in()
    assert len(listed(browser.console)) == 2
    assert "still signed in at single sign-on" in browser.console.get(PAGE).content.decode()
    browser.console.post(PAGE, {"session": "others"})
    assert (browser.is_signed_in, other.is_signed_in) == (True, False)

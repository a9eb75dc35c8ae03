"""A session ends after 15 idle minutes, and after 8 hours; what it was asked to do then is not done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from axes.models import AccessLog
from django.contrib.auth.models import User
from django.test import Client

from staff import sessions
from tests.workflows import rows
from workflows.models import Workflow

MINUTE = 60
HOUR = 60 * MINUTE

Clock = Callable[[float], None]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Lets so many seconds pass."""
    clock = [1_800_000_000.0]
    monkeypatch.setattr(sessions, "time", lambda: clock[0])

    def passes(seconds: float) -> None:
        clock[0] += seconds

    return passes


@pytest.fixture
def client(passes: Clock, db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client


# Of those that ask for a session the page that costs least.
PAGE = "/admin/jsi18n/"


def is_signed_in(client: Client) -> bool:
    return client.get(PAGE).status_code == 200


def sign_in_page(client: Client, answer: Any) -> str:
    assert answer.status_code == 302
    assert answer["Location"].startswith("/admin/login/?next=")
    return str(client.get(answer["Location"]).content.decode())


def test_a_session_ends_after_15_minutes_without_activity_and_says_so(client: Client, passes: Clock) -> None:
    passes(15 * MINUTE - 1)
    assert is_signed_in(client)
    passes(15 * MINUTE)
    answer = client.get("/admin/workflows/workflow/?state=failed")
    assert answer["Location"] == "/admin/login/?next=/admin/workflows/workflow/%3Fstate%3Dfailed"
    assert "signed out after 15 minutes without activity. Sign in to go on." in sign_in_page(client, answer)
    assert AccessLog.objects.get().logout_time


def test_a_session_ends_after_8_hours_whatever_is_done_in_it(client: Client, passes: Clock) -> None:
    for _ in range(47):
        passes(10 * MINUTE)
        assert client.post("/admin/session/").status_code == 200
    passes(10 * MINUTE)
    assert "signed out 8 hours after you had signed in" in sign_in_page(client, client.get("/admin/"))


def test_what_a_page_asks_for_by_itself_is_no_activity(client: Client, passes: Clock) -> None:
    for _ in range(14):
        passes(MINUTE)
        assert client.get(PAGE, headers={"X-Background": "refresh"}).status_code == 200
        assert client.get("/admin/session/").json()["idle"] < 15 * MINUTE
    passes(MINUTE)
    assert client.get(PAGE, headers={"X-Background": "refresh"}).status_code == 401
    assert not is_signed_in(client)
    assert "without activity" in client.get("/admin/login/").content.decode()


def test_the_button_of_the_warning_is_activity_but_not_beyond_8_hours(client: Client, passes: Clock) -> None:
    passes(14 * MINUTE)
    assert client.get("/admin/session/").json() == {"idle": MINUTE, "most": 8 * HOUR - 14 * MINUTE}
    assert client.post("/admin/session/").json() == {"idle": 15 * MINUTE, "most": 8 * HOUR - 14 * MINUTE}
    passes(14 * MINUTE)
    assert is_signed_in(client)


def test_nobody_has_no_session_to_ask_about(db: None) -> None:
    assert Client().get("/admin/session/").status_code == 401
    assert Client().post("/admin/session/").status_code == 401


def test_a_form_of_an_ended_session_does_nothing_and_leads_back_to_its_page(client: Client, passes: Clock) -> None:
    workflow = rows.failed()
    page = f"/admin/workflows/workflow/{workflow.pk}/retry/"
    passes(16 * MINUTE)
    before = Workflow.objects.filter(pk=workflow.pk).values().get()
    answer = client.post(page, {"reason": "Again."}, headers={"Referer": f"http://testserver{page}?x=1"})
    assert answer["Location"] == f"/admin/login/?next={page}%3Fx%3D1"
    assert "Nothing was done: fill in what is empty now, and send it again." in sign_in_page(client, answer)
    assert Workflow.objects.filter(pk=workflow.pk).values().get() == before


def test_a_form_of_another_place_leads_home(client: Client, passes: Clock) -> None:
    passes(16 * MINUTE)
    for referer in ("http://evil.example/admin/", "", "http://testserver/admin/login/", "http://[nowhere"):
        answer = client.post("/admin/logout/", headers={"Referer": referer})
        assert answer["Location"] == "/admin/login/?next=/admin/"


def test_a_key_that_no_session_can_have_is_nobodys(db: None) -> None:
    """A browser may send any character in a cookie, in quotes; PostgreSQL takes no NUL."""
    for key in ('"\\000abcdefghijk"', '"abcdefgh\\000"', "abcdefgh'--"):
        answer = Client().get("/admin/", headers={"cookie": f"sessionid={key}"})
        assert answer["Location"] == "/admin/login/?next=/admin/"


def test_a_form_of_nobody_says_that_nothing_was_done(db: None) -> None:
    client = Client()
    assert "You are not signed in. Nothing was done" in sign_in_page(client, client.post("/admin/password_change/"))


def test_a_burst_of_pages_writes_the_session_once(client: Client, passes: Clock, monkeypatch: Any) -> None:
    from django.contrib.sessions.backends.db import SessionStore

    saved = []
    save = SessionStore.save
    monkeypatch.setattr(SessionStore, "save", lambda *a, **k: saved.append(1) or save(*a, **k))
    passes(5)
    for _ in range(5):
        assert is_signed_in(client)
    assert len(saved) == 1


def test_the_page_tells_its_script_how_long_there_is_and_who_it_is(client: Client, passes: Clock) -> None:
    passes(HOUR / 10)
    user = User.objects.get()
    page = client.get("/admin/").content.decode()
    assert f'data-user="{user.pk}" data-idle="900" data-most="{8 * HOUR - 360}" data-warning="120"' in page
    assert 'data-user=""' in Client().get("/admin/login/").content.decode()


def test_the_cookies_are_not_for_scripts_nor_for_other_sites(db: None, hasher: Any) -> None:
    User.objects.create_superuser("ada", password="correct horse battery")
    answer = Client().post("/admin/login/", {"username": "ada", "password": "correct horse battery"})
    for name in ("sessionid", "csrftoken"):
        assert (bool(answer.cookies[name]["httponly"]), answer.cookies[name]["samesite"]) == (True, "Lax")

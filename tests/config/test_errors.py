"""The pages for what cannot be shown: plain words, a way home, and nothing of what went wrong inside."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import IntegrityError, OperationalError, connection
from django.http import HttpResponse
from django.test import Client

from config.urls import urlpatterns
from tests.workflows.admin.walk.kept import log_lines
from workflows.console.site import ConsoleSite
from workflows.models import Service

CANARY = "canary-7d1f"
TECHNICAL = re.compile(
    r"csrf|exception|traceback|debug|forbidden|http|server|request|token|\b[45]\d\d\b|http404", re.IGNORECASE
)


def _service() -> int:
    return ContentType.objects.get_for_model(Service).pk


# What makes each page, as a user who may see workflows; and the words that it starts with.
PAGES: dict[str, tuple[int, str, Callable[[Client], Any]]] = {
    "no such address": (404, "There is nothing here", lambda client: client.get("/nothing/")),
    "no such page": (404, "There is nothing here", lambda client: client.get("/admin/nothing/")),
    "no such row": (404, "There is nothing here", lambda client: client.get("/admin/workflows/workflow/333/change/")),
    "no number": (404, "There is nothing here", lambda client: client.get("/admin/workflows/workflow/x%00/change/")),
    "no row elsewhere": (404, "There is nothing here", lambda client: client.get(f"/admin/r/{_service()}/%00/")),
    "no permission": (403, "You may not do this", lambda client: client.get("/admin/workflows/workerprocess/")),
    "no token": (403, "Send it once more, please", lambda client: client.post("/admin/find/", {"q": CANARY})),
    "no host of ours": (400, "This could not be read", lambda client: client.get("/admin/", headers={"host": "evil"})),
    "our mistake": (500, "Something is wrong on our side", lambda client: client.get(f"/admin/?{CANARY}")),
}


@pytest.fixture
def client(db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The browser of somebody who may see workflows, and to whom Home fails."""
    settings.ALLOWED_HOSTS = ["testserver"]

    def fail(*_: Any, **__: Any) -> HttpResponse:
        raise LookupError(CANARY)

    monkeypatch.setattr(ConsoleSite, "_glance", fail)
    user = User.objects.create_user("ada", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_workflow"))
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(user)
    return client


def words(response: Any) -> str:
    html = response.content.decode().split("<main")[1].split("</main>")[0]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", f"<main{html}"))).strip()


@pytest.mark.parametrize("what", PAGES)
def test_it_says_in_plain_words_what_to_do_and_has_a_way_home(client: Client, what: str) -> None:
    status, title, ask = PAGES[what]
    response = ask(client)
    html = response.content.decode()
    assert response.status_code == status
    assert words(response).startswith(title)
    assert not TECHNICAL.search(words(response))
    assert CANARY not in html
    assert '<a class="button" href="/admin/">Home</a>' in html
    assert "no-store" in response["Cache-Control"]
    assert "default-src 'self'" in response["Content-Security-Policy"]
    assert "<style" not in html
    assert "onclick" not in html
    # Whoever is signed in keeps the bar and the search, where nothing is broken.
    is_whole = status in (403, 404)
    assert ('<nav class="bar"' in html, "data-find" in html) == (is_whole, is_whole)


class PlainUrls:
    """Those of a project that names no handlers."""

    urlpatterns = urlpatterns


@pytest.mark.parametrize("debug", [False, True])
def test_a_project_without_handlers_has_the_consoles_pages(client: Client, settings: Any, debug: bool) -> None:
    settings.ROOT_URLCONF, settings.DEBUG = PlainUrls, debug
    for what in ("no permission", "no such page", "no such row"):
        status, title, ask = PAGES[what]
        response = ask(client)
        assert response.status_code == status
        assert ('<nav class="bar"' in response.content.decode()) == (status == 403 or not debug)
        assert title in response.content.decode() or (debug and status == 404)
    assert '<nav class="bar"' not in client.get("/nothing/").content.decode(), "not of the console"


def test_what_is_refused_before_the_way_to_https_has_the_policy_too(client: Client, settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    response = client.get("/admin/", headers={"host": "evil"})
    assert response.status_code == 400
    assert "default-src 'self'" in response["Content-Security-Policy"]
    assert client.get("/admin/", headers={"host": "testserver"})["Location"] == "https://testserver/admin/"


def test_a_stranger_sees_neither(db: None) -> None:
    response = Client().get("/nothing/")
    assert response.status_code == 404
    assert words(response).startswith("There is nothing here")
    assert '<nav class="bar"' not in response.content.decode()
    assert "data-find" not in response.content.decode()


def test_a_database_that_is_down_has_a_page_that_does_not_need_it(client: Client) -> None:
    def refuse(*_: Any) -> Any:
        raise OperationalError(CANARY)

    for url in ("/admin/", "/nothing/"):
        with connection.execute_wrapper(refuse):
            response = client.get(url)
        assert response.status_code == 500
        assert words(response).startswith("Something is wrong on our side")
        assert CANARY not in response.content.decode()


def test_the_log_says_what_it_was_and_where_and_never_what_it_was_about(client: Client) -> None:
    """PostgreSQL's errors quote the row, Python's the value."""

    def refuse(*_: Any) -> Any:
        try:
            raise LookupError(CANARY)
        except LookupError as error:
            raise IntegrityError(f"DETAIL:  Failing row contains ({CANARY}).") from error

    with log_lines() as lines, connection.execute_wrapper(refuse):
        assert client.get("/admin/").status_code == 500
    logged = lines.getvalue()
    assert "Internal Server Error: /admin/" in logged
    assert "IntegrityError" in logged
    assert " in refuse" in logged
    assert CANARY not in logged

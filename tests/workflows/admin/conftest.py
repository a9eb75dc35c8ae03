from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import unescape
from time import time
from typing import Any
from urllib.parse import urljoin

import pytest
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import Group, User
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from staff.sessions import BEGAN, CONFIRMED, SEEN
from tests.groups import make_groups
from workflows.definition import definitions

# The fixture `as_`, as tests take it.
Login = Callable[..., Client]


@pytest.fixture(autouse=True)
def parcels(settings: Any) -> Iterator[None]:
    """The console of a project whose one definition is `tests.workflows.rows.PARCEL`."""
    settings.WORKFLOWS = ["tests.workflows.rows.PARCEL", "onboarding.workflow.ONBOARDING"]
    definitions.cache_clear()
    yield
    definitions.cache_clear()


@pytest.fixture
def letters(parcels: None, settings: Any) -> Iterator[None]:
    """One more definition: the parcels of `rows` have no search keys."""
    settings.WORKFLOWS = ["tests.workflows.rows.PARCEL", "tests.workflows.search.test_search_keys.KEYED"]
    definitions.cache_clear()
    yield
    definitions.cache_clear()


@pytest.fixture
def as_(db: None) -> Login:
    """A browser in which somebody of that group is logged in; CSRF tokens are asked for if `csrf` says so."""

    def log_in(role: str, *, csrf: bool = False) -> Client:
        user, _ = User.objects.get_or_create(username=f"some-{role}", is_staff=True, is_superuser=(role == "superuser"))
        if role not in ("superuser", "nobody"):
            make_groups()
            user.groups.set([Group.objects.get(name=role)])
        client = Client(enforce_csrf_checks=csrf)
        client.cookies[settings.SESSION_COOKIE_NAME] = session_of(user)
        return client

    return log_in


def session_of(user: User) -> str:
    """A session as a sign-in leaves it, without the record of the sign-in: a third of a short test's time."""
    session = SessionStore()
    session[SESSION_KEY], session[HASH_SESSION_KEY] = str(user.pk), user.get_session_auth_hash()
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[BEGAN] = session[SEEN] = session[CONFIRMED] = time()
    session.create()
    return str(session.session_key)


def read(client: Client, url: str) -> str:
    """The text of a page, without its elements."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", client.get(url).content.decode())).split())


def queries(client: Client, url: str) -> int:
    """How many statements a page takes."""
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200
    return ours(captured)


def ours(captured: CaptureQueriesContext) -> int:
    """How many they are. Now and then the session is written, in a savepoint, too: that it is still in use."""
    return len([query for query in captured if not re.search("django_session|SAVEPOINT", query["sql"])])


# Of Django's own: of users and groups, and texts for scripts.
NOT_OURS = ("/admin/auth/", "/admin/jsi18n/")


def crawl(
    client: Client,
    *,
    start: Iterable[str] = ("/admin/",),
    known: Mapping[str, str] | None = None,
    but: tuple[str, ...] = NOT_OURS,
    filtered: bool = True,
) -> dict[str, str]:
    """Every page of the console that links lead to from `start`, with its HTML; none that begins as in `but`.

    Without `filtered` no list or page is asked for a part of itself. What is `known` is not asked for again.
    """
    pages: dict[str, str] = {}
    ahead = [*start]
    while ahead:
        url = ahead.pop()
        if url in pages or url.startswith(but):
            continue
        if "?" in url and not filtered:
            continue
        # Two filters at once, another order, or the way back to a filtered list: the same page again.
        if "&" in url or "?o=" in url or "?_changelist_filters=" in url:
            continue
        if known and url in known:
            pages[url] = known[url]
        else:
            response = client.get(url)
            assert response.status_code == 200, f"{url}: {response.status_code}"
            pages[url] = response.content.decode()
        ahead += links(url, pages[url])
    return pages


def links(page: str, html: str) -> list[str]:
    """Where the links of a page lead in the console."""
    found = (urljoin(page, unescape(link)) for link in re.findall(r'href="([^"#]*)"', html))
    return [target for target in found if target.startswith("/admin/")]

"""The console as people meet it: a real server, a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from tests.groups import make_groups
from tests.servers import Gunicorn, database_url, gunicorn
from workflows.definition import definitions

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install -e '.[dev]'")

# Onboardings, and parcels: the definitions of `tests.workflows.rows`.
WORKFLOWS = ["onboarding.workflow.ONBOARDING", "tests.workflows.rows.PARCEL"]

# A person's page, logged in as somebody of that group: what tests take.
Open = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.django_db(transaction=True, databases=["default", "attempt_log"]))


@pytest.fixture(scope="module")
def server_environment() -> dict[str, str]:
    """The variables that a module's console is started with."""
    return {"WORKFLOWS": ",".join(WORKFLOWS)}


@pytest.fixture(autouse=True)
def both_definitions(settings: Any) -> Iterator[None]:
    """What the tests themselves know, too."""
    settings.WORKFLOWS = WORKFLOWS
    definitions.cache_clear()
    yield
    definitions.cache_clear()


@pytest.fixture(scope="module")
def module_server(
    django_db_setup: None,
    django_db_blocker: Any,
    tmp_path_factory: pytest.TempPathFactory,
    server_environment: dict[str, str],
) -> Iterator[Gunicorn]:
    """One console for all tests of a module: it keeps nothing that is not in the database."""
    with django_db_blocker.unblock():
        url = database_url()
    with gunicorn("config.wsgi", tmp_path_factory.mktemp("console"), url=url, **server_environment) as started:
        yield started


@pytest.fixture
def server(transactional_db: None, module_server: Gunicorn) -> Gunicorn:
    return module_server


@pytest.fixture
def sign_in(server: Gunicorn) -> Callable[[Any, str, str], None]:
    """Signs somebody of a group in, and opens a path. Here they bring their session along."""

    def sign_in(page: Any, group: str, path: str) -> None:
        page.context.add_cookies([{**session_of(group), "url": f"http://127.0.0.1:{server.port}"}])
        page.goto(path)

    return sign_in


@pytest.fixture
def open_as(browser: Any, server: Gunicorn, sign_in: Callable[[Any, str, str], None]) -> Iterator[Open]:
    """Opens the console in a browser of its own, as somebody of that group. No page may log an error."""
    contexts: list[Any] = []
    errors: list[str] = []

    def open_as(group: str, path: str = "/admin/", **how: Any) -> Any:
        context = browser.new_context(base_url=f"http://127.0.0.1:{server.port}", **how)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        sign_in(page, group, path)
        return page

    yield open_as
    for context in contexts:
        context.close()
    assert [error for error in errors if "favicon" not in error and "404" not in error] == []


def user_of(group: str) -> User:
    user, _ = User.objects.get_or_create(username=f"some-{group}", is_staff=True, is_superuser=(group == "superuser"))
    # No new user, and one who is told apart from others.
    since = timezone.now() - timedelta(days=2)
    User.objects.filter(pk=user.pk).update(email=f"{user.pk}@clinic.example", date_joined=since)
    if group != "superuser":
        make_groups()
        user.groups.set([Group.objects.get(name=group)])
    return user


def session_of(group: str) -> dict[str, str]:
    user, client = user_of(group), Client()
    client.force_login(user)
    UserSession.objects.create(user=user, ip="192.0.2.1", session_key=client.session.session_key)
    return {"name": settings.SESSION_COOKIE_NAME, "value": client.cookies[settings.SESSION_COOKIE_NAME].value}

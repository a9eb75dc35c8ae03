from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from tests.groups import make_groups
from workflows.definition import definitions

# The fixture `as_`, as tests take it.
Login = Callable[..., Client]

ROLES = ["support", "support lead", "approver", "engineer", "operations", "auditor", "superuser"]


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
    settings.WORKFLOWS = ["tests.workflows.rows.PARCEL", "tests.workflows.test_search_keys.KEYED"]
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
        client.force_login(user)
        return client

    return log_in


def crawl(client: Client) -> dict[str, str]:
    """Every page of the console that can be reached by links, with its HTML."""
    pages: dict[str, str] = {}
    ahead = ["/admin/"]
    while ahead:
        url = ahead.pop()
        if url in pages or url.startswith(("/admin/auth/", "/admin/jsi18n/")):
            continue
        if "&" in url:  # two filters at once: the same page again
            continue
        response = client.get(url)
        assert response.status_code == 200, f"{url}: {response.status_code}"
        pages[url] = response.content.decode()
        for link in re.findall(r'href="([^"#]*)"', pages[url]):
            link = link.replace("&amp;", "&")
            if link.startswith("?"):
                ahead.append(url.split("?")[0] + link)
            elif link.startswith("/admin/"):
                ahead.append(link)
    return pages

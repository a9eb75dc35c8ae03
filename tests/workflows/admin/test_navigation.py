"""The bar on every page: what is in it, for whom, and where one is."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, crawl

BAR = re.compile(r'<nav class="bar".*?</nav>', re.DOTALL)
ALL = ["Find", "Needs a person", "Workflows", "Inbox", "Services", "Workers"]


def bar(html: str) -> dict[str, tuple[str, str]]:
    """Of each label: where it leads, and its aria-current."""
    items = re.findall(r'<a href="([^"]*)"(?: aria-current="(\w+)")?>(.*?)</a>', "".join(BAR.findall(html)))
    return {label: (url, current) for url, current, label in items}


def page(client: Client, url: str) -> str:
    return client.get(url).content.decode()


@pytest.mark.parametrize(
    ("role", "labels"),
    [
        ("support", ALL),
        ("engineer", ALL),
        ("auditor", ALL[:-1]),
        ("superuser", ALL),
        ("approver", ["Find", "Needs a person", "Workflows", "Inbox"]),
        ("nobody", []),
    ],
)
def test_it_has_the_pages_that_one_may_see_and_no_other(as_: Login, role: str, labels: list[str]) -> None:
    client = as_(role)
    found = bar(page(client, "/admin/"))
    assert list(found) == labels
    for url, _ in found.values():
        assert client.get(url).status_code == 200


def test_it_is_on_every_page(as_: Login) -> None:
    rows.waiting()
    rows.failed()
    rows.worker()
    pages = crawl(as_("superuser"))
    assert len(pages) > 20
    assert [url for url, html in pages.items() if list(bar(html)) != ALL] == []


def test_it_says_where_one_is(as_: Login) -> None:
    row = rows.failed()
    support = as_("support")

    def current(url: str) -> dict[str, str]:
        return {label: current for label, (_, current) in bar(page(support, url)).items() if current}

    assert current("/admin/") == {}
    assert current("/admin/find/") == {"Find": "page"}
    assert current("/admin/workflows/workflow/?state=failed") == {"Workflows": "page"}
    assert current(f"/admin/workflows/workflow/{row.pk}/change/") == {"Workflows": "true"}
    assert current("/admin/workflows/workerprocess/") == {"Workers": "page"}


def test_the_keyboard_may_skip_it(as_: Login) -> None:
    html = page(as_("support"), "/admin/")
    skip, start = html.index('href="#content-start"'), html.index('id="content-start"')
    assert skip < html.index('<nav class="bar"') < start


def test_it_is_not_there_before_the_sign_in(db: None) -> None:
    assert "bar" not in page(Client(), "/admin/login/").split("<body")[1].split("<main")[0]

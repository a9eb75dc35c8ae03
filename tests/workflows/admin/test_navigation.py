"""The bar on every page: what is in it, for whom, and where one is."""

from __future__ import annotations

import re

from django.test import Client

from tests.workflows.admin.conftest import Login

BAR = re.compile(r'<nav class="bar".*?</nav>', re.DOTALL)
ALL = [
    *("Find", "For you", "Workflows", "Failures", "Bulk operations", "Services", "Queues", "Workers"),
    "Audit",
]
# Of each role: the pages that one may see, and no other. The walk looks for them on every page.
LABELS = {
    "superuser": ALL,
    **dict.fromkeys(("support", "support lead", "engineer"), ALL[:-1]),
    "auditor": [*ALL[:-2], "Audit"],
    **dict.fromkeys(("approver", "operations"), ALL[:4]),
    "user administrator": [],
    "staff without a group": [],
}


def bar(html: str) -> dict[str, tuple[str, str]]:
    """Of each label: where it leads, and its aria-current."""
    items = re.findall(r'<a href="([^"]*)"(?: aria-current="(\w+)")?>(.*?)</a>', "".join(BAR.findall(html)))
    return {label: (url, current) for url, current, label in items}


def page(client: Client, url: str) -> str:
    return client.get(url).content.decode()


def test_other_lists_are_behind_more(as_: Login) -> None:
    more = {role: as_(role).get("/admin/").context["more_pages"] for role in ("superuser", "support", "nobody")}
    of_all = ["API keys", "Erasures", "Legal holds", "Maintenance tasks", "Outbox events", "Proposals"]
    of_all += ["Undelivered messages"]
    assert [label for label, _ in more["superuser"]] == [*of_all, "Groups", "Users"]
    assert ([label for label, _ in more["support"]], more["nobody"]) == (["Maintenance tasks", "Proposals"], [])
    html = page(as_("superuser"), "/admin/workflows/workflow/")
    assert all(url in html.split('class="more"')[1].split("</nav>")[0] for _, url in more["superuser"])

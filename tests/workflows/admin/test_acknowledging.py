"""Acknowledge, on the page of a workflow: what it says beforehand and afterwards, and what it takes off the lists."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from workflows.models import Workflow

NOTE = "The patient was called."


def listed(client: Client) -> list[int]:
    found = client.get("/admin/needs-a-person/").context
    return [*(line.workflow for line in found["lines"]), *(pk for each in found["groups"] for pk in each.group.newest)]


@pytest.mark.parametrize("make", [rows.failed, rows.given_up])
def test_what_is_acknowledged_leaves_the_list_and_its_page_says_who_did_so(
    as_: Login, make: Callable[[], Workflow]
) -> None:
    row, support = make(), as_("support")
    page = f"/admin/workflows/workflow/{row.pk}/"
    assert "Acknowledge" in [verb.label for verb, _ in support.get(f"{page}change/").context["verbs"]]
    form = support.get(f"{page}acknowledge/").content.decode()
    assert "It leaves the list of what needs a person." in form
    assert "it needs a person again." in form
    seen = re.findall(r'name="seen" value="(\d+)"', form)
    assert len(seen) == 1
    html = support.post(f"{page}acknowledge/", {"seen": seen, "reason": NOTE}, follow=True).content.decode()
    assert "It is acknowledged." in html
    assert re.search(rf"Acknowledged by some-support at [\d:]+ UTC: {NOTE}", re.sub("<[^>]+>", "", html))
    assert listed(support) == []
    response = support.get(f"{page}change/")
    assert "Acknowledge" not in [verb.label for verb, _ in response.context["verbs"]]
    html = support.post(f"{page}acknowledge/", {"seen": seen, "reason": NOTE}, follow=True).content.decode()
    assert "ome-support has acknowledged it already" in html

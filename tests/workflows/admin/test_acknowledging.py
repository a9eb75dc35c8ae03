"""Acknowledge, on the page of a workflow: what it says beforehand and afterwards, and what it takes off the lists."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from workflows.models import FollowUp, Workflow

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
    assert re.search(rf"Acknowledged by some-support at [\d:]+ UTC: {NOTE}", html)
    assert listed(support) == []
    response = support.get(f"{page}change/")
    assert "Acknowledge" not in [verb.label for verb, _ in response.context["verbs"]]
    html = support.post(f"{page}acknowledge/", {"seen": seen, "reason": NOTE}, follow=True).content.decode()
    assert "ome-support has acknowledged it already" in html


def test_a_form_without_a_note_or_of_a_failure_that_was_not_seen_acknowledges_nothing(as_: Login) -> None:
    row, support = rows.failed(), as_("support")
    url = f"/admin/workflows/workflow/{row.pk}/acknowledge/"
    (seen,) = re.findall(r'name="seen" value="(\d+)"', support.get(url).content.decode())
    assert "reason" in support.post(url, {"seen": seen, "reason": " "}).context["form"].errors
    for stale in ({}, {"seen": int(seen) - 1}):
        html = support.post(url, {**stale, "reason": NOTE}, follow=True).content.decode()
        assert "It has failed anew since you looked" in html
    assert len(listed(support)) == 1


def test_home_leaves_out_what_was_acknowledged(as_: Login) -> None:
    rows.given_up()
    (row,) = FollowUp.objects.all()
    FollowUp.objects.update(acknowledged_failure=row.created_at)
    support = as_("support")
    assert support.get("/admin/").context["needs_a_person"] == "0"
    assert (
        "Not done: “Thank”, given up."
        in support.get(f"/admin/workflows/workflow/{row.workflow_id}/change/").content.decode()
    )

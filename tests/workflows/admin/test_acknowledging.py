"""Acknowledge, on the page of a workflow: what it says beforehand and afterwards, and what it takes off the lists."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from workflows.models import Workflow
from workflows.telling.patient import REFUNDED, TO_GO_ON, message_of

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


@pytest.mark.parametrize("asks", ["correction", "retry"])
def test_while_it_may_go_on_nothing_leads_support_on_and_the_patient_starts_nothing_again(
    as_: Login, asks: str
) -> None:
    row, support = rows.failed(workflow_type="onboarding", last_error_code="email_taken"), as_("support")
    rows.refunded_charge(row)
    page = f"/admin/workflows/workflow/{row.pk}/"
    before = support.get(f"{page}change/").context
    assert (before["main"].label, "use another address" in before["to_tell"]) == ("Acknowledge", True)
    if asks == "correction":
        rows.asked_to_correct(row)
        assert "waits for another user all the same" in support.get(f"{page}acknowledge/").content.decode()
    else:
        rows.to_confirm(User.objects.create_superuser("boss"), row)
    answer = support.get(f"{page}change/")
    assert "Acknowledge" in [verb.label for verb, _ in answer.context["verbs"]]
    assert "button-primary" not in answer.content.decode()
    told = Workflow.objects.with_state().get(pk=row.pk)
    assert answer.context["to_tell"] == message_of(told) == f"{TO_GO_ON} {REFUNDED}"
    Workflow.objects.filter(pk=row.pk).update(status="PENDING", completed_at=None, compensating=True)
    assert TO_GO_ON not in message_of(Workflow.objects.with_state().get(pk=row.pk)), "it is under way"

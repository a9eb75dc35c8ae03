"""Two submissions of one patient, on their pages: a plain sentence, a link both ways; a lead may tell them apart."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels
from tests.workflows.admin.tasks import words
from workflows.features.business_key import holders
from workflows.features.business_key.holders import FORMER, HOLDER, HOLDER_ENDED, WAITING
from workflows.health import needs_a_person, recent_failures
from workflows.models import BusinessKeyHash, Event, Workflow

__all__ = ["as_", "parcels"]

SENT = {"patient": {"email": "jane@example.com"}, "checkout": {"program": "body"}}
OF_FAILURE = {"status": "FAILED", "last_error_code": "duplicate_of"}


def sent(role: str, **fields: Any) -> Workflow:
    row = rows.workflow(workflow_type="onboarding", payload=SENT, **fields)
    for each, key_id in holders.hashes_of(row):
        BusinessKeyHash.objects.create(hash=each, workflow_id=row.pk, key_id=key_id, role=role)
    return row


def waits(**fields: Any) -> Workflow:
    later = timezone.now() + timedelta(hours=1)
    return sent(WAITING, waiting_for="workflow 1", wake_on=[HOLDER_ENDED], invisible_until=later, begun=True, **fields)


def ended(**fields: Any) -> Workflow:
    row = sent(FORMER, **OF_FAILURE, completed_at=timezone.now(), **fields)
    Workflow.objects.filter(pk=row.pk).update(acknowledged_failure=F("completed_at"))
    return row


def page(client: Client, row: Workflow) -> str:
    html = client.get(f"/admin/workflows/workflow/{row.pk}/change/").content.decode()
    return words(html.partition('<div id="live"')[2].partition("What to tell the patient")[0])


def test_the_pages_of_both_say_which_is_which_and_lead_to_each_other(as_: Login) -> None:
    first, second, third = sent(HOLDER), waits(), ended()
    client, same = as_("support"), "the same patient and program"
    assert f"A second submission for {same}: the first is under way." in page(client, second)
    assert f"The first submission for {same}: Workflow {first.pk}" in page(client, second)
    of_first = page(client, first)
    assert f"A second submission for {same}, which waits for the first to end: Workflow {second.pk}" in of_first
    assert f"A second submission for {same}, which ended as a duplicate: Workflow {third.pk}" in of_first
    Workflow.objects.filter(pk=first.pk).update(status="COMPLETE")
    assert f"the first submission for {same} is complete." in (told := page(client, third))
    assert "Somebody has to look" not in told
    Workflow.objects.filter(pk=third.pk).update(acknowledged_failure=None)
    assert "is complete. Somebody has to look: it may be wanted, or was charged itself." in page(client, third)
    Workflow.objects.filter(pk=first.pk).update(status="FAILED")
    assert "a call of it was left as it is. Look at that one" in page(client, third)
    changed = {**SENT, "checkout": {"program": "body", "plan": "monthly"}}
    Workflow.objects.filter(pk=third.pk).update(last_error_code="duplicate_differs", payload=changed)
    told = page(client, third)
    assert f"was not carried out: it differs from another submission for {same}" in told
    assert f"The first submission for {same} (this one differs in Plan): Workflow {first.pk}" in told


def test_a_possible_duplicate_is_decided_on_the_page_of_its_task(as_: Login) -> None:
    row = rows.waiting(task=False)
    task = rows.open_task(
        row, task_type="possible_duplicate", team="operations", question="Should this one be carried out as well?"
    )
    html = as_("support lead").get(f"/admin/workflows/manualtask/{task.pk}/change/").content.decode()
    assert "Possible duplicate" in html
    assert "Carry it out as well" in html
    assert "Do not carry it out" in html


@pytest.mark.parametrize("make", [waits, ended])
def test_a_lead_says_that_it_is_none_and_support_is_told_to_ask_one(as_: Login, make: Any) -> None:
    sent(HOLDER)
    row = make()
    url = f"/admin/workflows/workflow/{row.pk}/not_a_duplicate/"
    told = as_("support").post(url, {"reason": "Her daughter."}, follow=True).content.decode()
    assert "The patient may be charged a second time: ask a support lead." in told
    assert not Event.objects.exists()
    as_("support lead").post(url, {"reason": "Her daughter."})
    row.refresh_from_db()
    assert (row.status, row.invisible_until <= timezone.now()) == ("PENDING", True)
    assert BusinessKeyHash.objects.get(workflow=row).role == HOLDER
    assert Event.objects.get().actor == "some-support lead"


def test_a_duplicate_is_no_failure_that_anybody_has_to_hear_of(as_: Login) -> None:
    row = ended()
    now = timezone.now() + timedelta(minutes=1)
    assert not recent_failures.failed_between(Workflow.objects.all(), now - timedelta(hours=1), now).exists()
    assert not needs_a_person.failures().exists()
    support = as_("support")
    assert "Acknowledge" not in page(support, row)
    for path in ("", f"{row.pk}/change/"):
        shown = support.get(f"/admin/workflows/workflow/{path}").content.decode()
        assert '<span class="badge badge-cancelled">Duplicate</span>' in shown
        assert not re.search("(standing|badge)-failed", shown), "nothing is red"

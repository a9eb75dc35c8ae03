"""A decision is made on the page of its task, by users who may, and while there is something to decide."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.targets import approve, reject
from tests.workflows.admin.tasks import page as task_page
from workflows.models import ManualTask, Signal, Workflow


def test_who_decides_sees_the_question_and_the_facts_on_the_page_of_the_decision(as_: Login) -> None:
    task = rows.open_task(
        rows.waiting(task=False), facts=[["Weight", 92], ["Fragile", True], ["Labels", ["a", "b"]], ["Note", None]]
    )
    html = task_page(as_("approver"), task)
    for shown in ["May this parcel go out?", "Weight", ">92<", ">yes<", ">a, b<", ">not given<", "Approve", "Reject"]:
        assert shown in html


def test_the_facts_are_for_who_decides_and_stay_once_it_is_decided(as_: Login) -> None:
    task = rows.open_task(rows.waiting(task=False), facts=[["Weight", "ninety-two"]])
    for role in ("support", "engineer", "auditor"):
        assert "ninety-two" not in task_page(as_(role), task)
    approver = as_("approver")
    assert "ninety-two" in task_page(approver, task)
    approver.post(f"/admin/workflows/manualtask/{task.pk}/decide/", {"decision": "approve"})
    assert "ninety-two" in task_page(approver, task)
    for role in ("support", "engineer", "auditor"):
        assert "ninety-two" not in task_page(as_(role), task)
    expired = rows.open_task(rows.waiting(task=False), facts=[["Weight", "ninety-two"]], state="expired")
    assert "ninety-two" not in task_page(approver, expired)
    ManualTask.objects.filter(pk=task.pk).update(team="clinicians")
    assert "ninety-two" not in task_page(approver, task)


def test_a_decided_task_shows_the_decision(as_: Login) -> None:
    url, data = reject()
    client = as_("approver")
    html = client.post(url, data, follow=True).content.decode()
    assert "Rejected by <strong>some-approver</strong>" in html
    assert "<blockquote>No.</blockquote>" in html
    assert "Your decision" not in html


def test_a_question_that_is_no_longer_asked_takes_no_decision(as_: Login) -> None:
    task = rows.open_task(rows.compensating(), state="closed")
    url = f"/admin/workflows/manualtask/{task.pk}/decide/"
    html = as_("approver").post(url, {"decision": "approve"}, follow=True)
    assert "Its workflow went on without an answer." in html.content.decode()
    assert not Signal.objects.exists()


def test_a_decision_is_one_of_two(as_: Login) -> None:
    url, _ = approve()
    assert as_("approver").post(url, {"decision": "perhaps"}).status_code == 200
    assert ManualTask.objects.get().state == "open"


@pytest.mark.parametrize(
    ("make", "task", "said"),
    [
        (rows.workflow, {"expires_at": timezone.now() - timedelta(hours=1)}, "nobody decided in time"),
        (rows.workflow, {"state": "expired"}, "nobody decided in time"),
        (rows.workflow, {"state": "closed"}, "Its workflow went on without an answer"),
        (rows.failed, {}, "there is nothing left to decide"),
    ],
)
def test_a_task_that_is_no_longer_open_offers_nothing(
    as_: Login, make: Callable[[], Workflow], task: dict[str, Any], said: str
) -> None:
    later = timezone.now() + timedelta(hours=1)
    html = task_page(as_("approver"), rows.open_task(make(), **{"expires_at": later, **task}))
    assert said in html
    assert "Your decision" not in html

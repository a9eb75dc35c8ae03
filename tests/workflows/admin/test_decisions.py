"""A decision is made on the page of its task, by users who may, and while there is something to decide."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import page as task_page
from workflows.models import Event, ManualTask, Workflow


def test_the_facts_are_for_who_decides_and_stay_once_it_is_decided(as_: Login) -> None:
    task = rows.open_task(rows.waiting(task=False), facts=[["Weight", "ninety-two"]])
    support, approver = as_("support"), as_("approver")
    assert "ninety-two" not in task_page(support, task)
    assert "ninety-two" in task_page(approver, task)
    approver.post(f"/admin/workflows/manualtask/{task.pk}/decide/", {"decision": "approve"})
    assert "ninety-two" in task_page(approver, task)
    assert "ninety-two" not in task_page(support, task)
    expired = rows.open_task(rows.waiting(task=False), facts=[["Weight", "ninety-two"]], state="expired")
    assert "ninety-two" not in task_page(approver, expired)
    ManualTask.objects.filter(pk=task.pk).update(team="clinicians")
    assert "ninety-two" not in task_page(approver, task)
    assert ("Expires" in task_page(approver, task), "Expires" in task_page(approver, expired)) == (False, False)


def test_a_reason_that_repeats_what_was_sent_is_masked_for_all_who_do_not_see_the_facts(as_: Login) -> None:
    sent = {"questionnaire": {"answers": {"medications": ["insulin"]}}, "checkout": {"program": "body"}}
    row = rows.waiting(task=False, workflow_type="onboarding", payload=sent)
    task = rows.open_task(row, undoable=True, facts=[["Medications", "insulin"]])
    support, approver, said = as_("support"), as_("approver"), "Insulin and BMI outside the range of body."
    approver.post(f"/admin/workflows/manualtask/{task.pk}/decide/", {"decision": "reject", "reason": said})
    masked = "••• and BMI outside the range of body."
    assert Event.objects.get(kind="rejected").detail["reason"] == masked
    assert said in task_page(approver, task)
    assert (said in task_page(support, task), masked in task_page(support, task)) == (False, True)
    assert "nsulin" not in support.get(f"/admin/workflows/workflow/{row.pk}/change/").content.decode()


def test_a_task_that_is_no_longer_open_offers_nothing(as_: Login) -> None:
    approver, now, hour = as_("approver"), timezone.now(), timedelta(hours=1)
    over: list[tuple[Workflow, dict[str, Any], str]] = [
        (rows.workflow(), {"expires_at": now - hour}, "nobody decided in time"),
        (rows.workflow(), {"state": "expired"}, "nobody decided in time"),
        (rows.workflow(), {"state": "closed"}, "Its workflow went on without an answer"),
        (rows.failed(), {}, "there is nothing left to decide"),
    ]
    for row, fields, said in over:
        html = task_page(approver, rows.open_task(row, **{"expires_at": now + hour, **fields}))
        assert said in html
        assert "Your decision" not in html

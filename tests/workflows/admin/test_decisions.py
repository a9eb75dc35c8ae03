"""A decision is made on the page of its task, by users who may, and while there is something to decide."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import page as task_page
from workflows.models import ManualTask, Workflow


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

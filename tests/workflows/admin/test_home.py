"""The console's home: what it says when the database's clock was set back, or a maintenance task fails."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from workflows.health import bounded
from workflows.models import Chore, Workflow

AHEAD = timedelta(minutes=10)


def stored_before_the_clock_was_set_back(by: timedelta = AHEAD, **fields: Any) -> Workflow:
    """By now a workflow of the future, and due then."""
    at = timezone.now() + by
    return rows.workflow(**{"created_at": at, "invisible_until": at, **fields})


def home(as_: Login) -> str:
    html = unescape(as_("support").get("/admin/").content.decode())
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html))


def test_home_says_that_the_clock_was_set_back_and_until_when_workflows_are_hidden(as_: Login) -> None:
    last = stored_before_the_clock_was_set_back()
    stored_before_the_clock_was_set_back(timedelta(minutes=5))
    told = f"2 of them, the last at {last.invisible_until:%Y-%m-%d %H:%M:%S} UTC."
    shown = home(as_)
    assert "The database's clock was set back." in shown
    assert told in shown


DAY = timedelta(days=1)


@pytest.mark.parametrize("limit", [bounded.COUNT_LIMIT, 4])
def test_what_is_queued_is_counted_and_listed_once_whatever_it_is_queued_for(
    as_: Login, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(bounded, "COUNT_LIMIT", limit)
    now = timezone.now()
    queued = [
        rows.workflow(),
        rows.workflow(invisible_until=now + DAY),
        rows.workflow(begun=True, invisible_until=now - DAY),
        rows.workflow(begun=True, invisible_until=now + DAY),
        rows.workflow(begun=True, invisible_until=now - DAY, retry_count=1),
        rows.workflow(begun=True, invisible_until=now - DAY, waiting_for="a letter"),
        rows.workflow(begun=True, invisible_until=now - DAY, parked_on="payments"),
    ]
    rows.workflow(begun=True, invisible_until=now + DAY, retry_count=1)
    rows.running()
    client = as_("support")
    count = client.get("/admin/").context["glance"].states["queued"]
    assert count.number == min(len(queued), limit + 1)
    listed = client.get("/admin/workflows/workflow/?state=queued").context["cl"].result_list
    assert [row.pk for row in listed] == [row.pk for row in queued[::-1]]


def test_home_says_nothing_of_what_is_due_was_rescheduled_or_is_at_rest_nor_of_a_clock_kept_right_by_small_steps(
    as_: Login,
) -> None:
    now = timezone.now()
    for created_in, due_in, queue in (
        (-DAY, -DAY, "default"),
        (-DAY, DAY, "default"),
        (AHEAD, DAY, "default"),
        (AHEAD, -DAY, "default"),
        (AHEAD, AHEAD, "of somebody else's"),
    ):
        rows.workflow(created_at=now + created_in, invisible_until=now + due_in, queue=queue)
    stored_before_the_clock_was_set_back(timedelta(seconds=2))
    stored_before_the_clock_was_set_back(status="COMPLETE", completed_at=now)
    assert "clock was set back" not in home(as_)


def test_home_says_which_maintenance_task_fails_and_since_when(as_: Login) -> None:
    since = timezone.now() - timedelta(hours=1)
    Chore.objects.create(name="wake expired", failing_since=since, error="OperationalError 57014")
    Chore.objects.create(name="wake parents")
    shown = home(as_)
    assert f"“wake expired” since {since:%Y-%m-%d %H:%M:%S} UTC: OperationalError 57014." in shown
    assert "wake parents" not in shown

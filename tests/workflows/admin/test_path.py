"""The path of a workflow as a picture: its steps over the attempts, what was waited for, and where it stopped."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, queries
from workflows.console import path as picture
from workflows.console.path import Path, Row
from workflows.models import Attempt, Workflow
from workflows.models.clock import ClockTimestamp

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 20, 12, tzinfo=UTC)
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)


def ran(step: str, ms: float = 100, outcome: str = "ran", **entry: Any) -> dict[str, Any]:
    return {"step": step, "outcome": outcome, "ms": ms, **entry}


def attempt(
    row: Workflow, number: int, outcome: str, *steps: dict[str, Any], at: datetime, seconds: float = 0.4, **f: Any
) -> datetime:
    """An attempt from that time on. Returns when it was closed."""
    closed = at + seconds * SECOND
    rows.attempt(row, number, outcome=outcome, opened_at=at, closed_at=closed, steps=[*steps], **f)
    return closed


def created(row: Workflow, at: datetime = AT) -> Workflow:
    Workflow.objects.filter(pk=row.pk).update(created_at=at)
    return row


def path_of(as_: Login, row: Workflow, **cookies: str) -> Path:
    client = as_("support")
    for name, value in cookies.items():
        client.cookies[name] = value
    found = client.get(f"/admin/workflows/workflow/{row.pk}/change/").context["path"]
    assert isinstance(found, Path)
    return found


def row_of(path: Path, name: str) -> Row:
    return next(each for each in path.rows if each.name == name)


def test_it_has_the_steps_the_waits_and_where_it_stopped(as_: Login) -> None:
    row = created(rows.workflow(status="FAILED", completed_at=AT, current_step="charge"))
    closed = attempt(row, 1, "waiting", ran("reserve"), ran("review", 50, "waiting"), at=AT + 2 * SECOND)
    rows.event(row, "waiting", attempt=1, at=closed, detail={"waiting_for": "May it go out?"})
    rows.event(row, "approved", at=closed + 2 * DAY, actor="ada")
    second = [ran("reserve", 1, "recorded"), ran("review", 50), ran("charge", 200, "failed")]
    at = closed + 2 * DAY + 3 * SECOND
    closed = attempt(row, 2, "retry", *second, at=at, due_since=closed + 2 * DAY)
    attempt(row, 3, "failed", *second, at=closed + 60 * SECOND)
    path = path_of(as_, row)
    waited = "waited (May it go out?), until approved by ada, 2 d"
    assert path.waited.startswith(f"Waited to become due, 2.0 s; {waited}; waited for a worker, 3.0 s; waited for the")
    assert [(span.kind, span.label) for span in path.axis] == [
        *[("wait", "2.0 s"), ("attempt", "1"), ("wait", "2 d"), ("attempt", "2"), ("wait", "1 min"), ("attempt", "3")]
    ]
    assert [(each.name, each.told, each.mark) for each in path.rows] == [
        ("reserve", "Ran, 100 ms (attempt 1)", ""),
        (
            "review",
            f"Waiting, 50 ms (attempt 1); {waited} (attempt 1); waited for a worker, 3.0 s (attempt 1); "
            "ran 2 times, 100 ms (attempts 2, 3)",
            "",
        ),
        (
            "charge",
            "Failed 2 times, 400 ms (attempts 2, 3); waited for the next try, 1 min (attempt 2)",
            "Stopped here",
        ),
        ("thank", "Not reached", ""),
    ]
    assert [bar.kind for bar in row_of(path, "reserve").bars] == ["ran", "recorded", "recorded"]
    assert [bar.kind for bar in row_of(path, "charge").bars] == ["failed", "wait", "failed"]


def test_bars_stand_one_after_the_other_to_scale_and_nothing_leaves_the_picture(as_: Login) -> None:
    row = created(rows.complete())
    Attempt.objects.all().delete()
    attempt(row, 1, "complete", ran("reserve", 250), ran("review", 500), ran("charge", 0.01), at=AT, seconds=1)
    path = path_of(as_, row, zone="Europe/Berlin")
    placed = [(bar.x, bar.width) for each in path.rows for bar in each.bars]
    assert placed == [(0.0, 25.0), (25.0, 50.0), (75.0, picture.NARROWEST)]
    told = row_of(path, "review").bars[0].told
    assert told.endswith("from about 2026-05-20 14:00:00 Berlin time (2026-05-20 12:00:00 UTC)")
    full = created(rows.complete())
    Attempt.objects.filter(workflow=full).delete()
    attempt(full, 1, "complete", ran("reserve", 1000), ran("review", 0), at=AT, seconds=1)
    assert row_of(path_of(as_, full), "review").bars[0].x == 100 - picture.NARROWEST
    short = attempt(row, 2, "followed_up", ran("thank", 1), at=AT + 3 * DAY, seconds=0.001)
    attempt(row, 3, "followed_up", ran("thank", 1), at=short + 3 * DAY, seconds=0.001)
    path = path_of(as_, row)
    ends = [0.0, *(span.x + span.width for span in path.axis)]
    assert [*(span.x for span in path.axis), 100.0] == pytest.approx(ends, abs=0.02)
    assert min(span.width for span in path.axis) >= picture.ATTEMPT


def test_a_reversal_stands_beside_its_step_and_a_death_says_what_is_not_known(as_: Login) -> None:
    row = created(rows.failed(), timezone.now())
    now = timezone.now()
    attempt(row, 2, "compensated", ran("reserve", 30, "undone", undo=True), at=now)
    path = path_of(as_, row)
    assert [bar.kind for bar in row_of(path, "reserve").bars] == ["ran", "undone"]
    assert row_of(path, "reserve").told == "Ran, 12 ms (attempt 1); reversed, 30 ms (attempt 2)"
    assert "Reversal of “Reserve”: Reversed" in row_of(path, "reserve").bars[1].told
    assert row_of(path, "charge").mark == "Stopped here"
    dead = created(rows.workflow(), now)
    attempt(dead, 1, "crashed", at=now, died_in="charge")
    path = path_of(as_, dead)
    assert [(bar.kind, bar.x) for bar in row_of(path, "charge").bars] == [("died", 0.0), ("wait", 92.0)]
    assert row_of(path, "charge").told == "Its worker died here; waited after its worker died until now"
    assert row_of(path, "charge").mark == "Stopped here"


def test_what_was_looked_at_many_times_is_one_attempt_and_one_wait(as_: Login) -> None:
    row = created(rows.compensating(), AT)
    Attempt.objects.filter(workflow=row).update(opened_at=AT, closed_at=AT)
    looked = ran("charge", 5, "waiting", undo=True)
    at = attempt(row, 2, "waiting", looked, at=AT + DAY)
    rows.event(row, "waiting", attempt=2, at=at, detail={"waiting_for": "Has someone refunded it?"})
    for number in range(3, 40):
        at = attempt(row, number, "waiting", looked, at=at + HOUR)
    path = path_of(as_, row)
    assert [span.label for span in path.axis] == ["1", "2 d", "2-39", "now"]
    assert path.waited == "Waited (Has someone refunded it?), 2 d; waited (Has someone refunded it?) until now"
    assert (row_of(path, "charge").mark, row.status) == ("Waits here", "PENDING")
    Workflow.objects.filter(pk=row.pk).update(status="FAILED", completed_at=at, compensating=False)
    assert row_of(path_of(as_, row), "charge").mark == "", "it waits no more"


def test_one_that_is_complete_has_stopped_nowhere(as_: Login) -> None:
    row = rows.given_up()
    attempt(row, 2, "follow_up_failed", ran("thank", outcome="failed"), at=timezone.now())
    assert {each.mark for each in path_of(as_, row).rows} == {""}


@pytest.mark.parametrize(("after", "until"), [(0.3, 0.3), (0.4, 0.4), (60, 0.4), (-60, 0.4)])
def test_its_end_is_that_of_the_workflow_if_its_last_attempt_ended_that(as_: Login, after: float, until: float) -> None:
    row = rows.workflow(status="FAILED", completed_at=AT + after * SECOND)
    attempt(row, 1, "failed", ran("charge", outcome="failed"), at=AT)
    assert path_of(as_, row).until == AT + until * SECOND


def test_one_that_is_parked_again_waits_for_the_same_service(as_: Login) -> None:
    row = created(rows.parked(), AT)
    Attempt.objects.all().delete()
    closed = attempt(row, 1, "waiting", ran("charge", 5, "failed"), at=AT)
    rows.event(row, "parked", attempt=1, detail={"service": "payments"})
    attempt(row, 2, "waiting", ran("charge", 5, "failed"), at=closed + DAY)
    waited = "Waited for the payments service, 1 d; waited for the payments service until now"
    assert path_of(as_, row).waited == waited
    assert path_of(as_, rows.running()).axis[-1].told.startswith("Attempt 1: running; from")


def test_many_attempts_and_a_step_of_long_ago_take_no_more(as_: Login) -> None:
    row = rows.retrying(created_at=AT)
    few = queries(as_("support"), f"/admin/workflows/workflow/{row.pk}/change/")
    steps = [ran("reserve"), ran("gone"), ran("charge", outcome="failed")]
    Attempt.objects.bulk_create(
        Attempt(workflow=row, number=number, worker="w:1", closed_at=ClockTimestamp(), outcome="retry", steps=steps)
        for number in range(3, 300)
    )
    path = path_of(as_, row)
    assert queries(as_("support"), f"/admin/workflows/workflow/{row.pk}/change/") == few
    assert (path.left_out, len([span for span in path.axis if span.kind == "attempt"])) == (
        299 - picture.DRAWN,
        picture.DRAWN,
    )
    assert row_of(path, "gone").told == "Ran 8 times, 800 ms (attempts 292 to 299)"


def test_rows_without_a_bar_are_folded_and_its_links_lead_to_the_attempts(as_: Login) -> None:
    row = rows.retrying()
    html = as_("support").get(f"/admin/workflows/workflow/{row.pk}/change/").content.decode()
    for target in re.findall(r'<a href="#([^"]+)"', html):
        assert f'id="{target}"' in html
    folded = [*picture._folded(Row(name, name, "Not reached") for name in "abc")]
    assert [(each.title, each.told) for each in folded] == [("“a” to “c”", "3 steps: not reached")]

"""Each number on Home, and each column and bar of its charts, opens as many as it says; /metrics says the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from tests.rollup import look
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.api.test_metrics import Samples, told
from tests.workflows.features.brake.causes import open_cause
from tests.workflows.features.outages.services import open_circuit
from workflows.console.charts import Chart, Column
from workflows.console.links import failed_in, incident
from workflows.console.ranges import RANGES
from workflows.features.retention import content
from workflows.features.trends.page import FAILURES
from workflows.health.recent_failures import interval_text
from workflows.models import Effect, State, Workflow
from workflows.models.xids import CurrentTransactionId

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
LIST = "/admin/workflows/workflow/"
DECLINED = {"error_code": "card_declined"}


@pytest.fixture(autouse=True)
def _definitions(parcels: None, settings: Any) -> None:
    settings.DEBUG = True


def ends(row: Workflow, *times: datetime, kind: str = "failed", **detail: str) -> Workflow:
    """It came to rest at each of these times, and was retried after each but the last."""
    verdict = {"step": row.current_step or "charge", "detail": detail or DECLINED}
    for at in times:
        if at != times[0]:
            rows.event(row, "retried", at=at - timedelta(seconds=1), actor="ada")
        rows.event(row, kind, at=at, finished_xid=CurrentTransactionId(), **verdict)
    return row


def completes(row: Workflow, at: datetime) -> Workflow:
    rows.event(row, "retried", at=at - timedelta(seconds=1), actor="ada")
    rows.event(row, "completed", at=at, finished_xid=CurrentTransactionId())
    return row


def everything(now: datetime) -> None:
    """Workflows of every kind, most of which have failed at some time."""
    late = now - 10 * MINUTE
    hour = now.replace(minute=0, second=0, microsecond=0) - 5 * HOUR
    ends(rows.failed(completed_at=late), late)
    ends(rows.failed(completed_at=late, acknowledged_failure=late), late)
    ends(rows.failed(completed_at=hour + 2 * MINUTE), hour + MINUTE, hour + 2 * MINUTE)
    completes(ends(rows.complete(), now - 3 * HOUR), now - 2 * HOUR)
    corrected = ends(rows.complete(), now - 4 * HOUR)
    rows.event(corrected, "corrected", at=late, actor="ada")
    completes(corrected, late + MINUTE)
    ends(rows.workflow(), now - 3 * HOUR)  # retried, and queued
    for code in ("duplicate_of", "duplicate_differs"):
        ends(rows.failed(completed_at=late, last_error_code=code), late, kind="duplicate", error_code=code)
    for code in ("expired", "odd"):
        ends(rows.failed(completed_at=late, last_error_code=code), late, error_code=code)
    ends(rows.cancelled(completed_at=late, cancelled_at=late), late, kind="cancelled", error_code="cancelled")
    for make, kind in ((rows.failed, "failed"), (rows.cancelled, "cancelled")):
        row = make(completed_at=late)
        rows.event(row, kind, at=late - MINUTE, step="charge", detail=DECLINED)
        ends(row, late, kind="compensated", undone="charge")
    ends(rows.failed(completed_at=now - 30 * HOUR), now - 30 * HOUR)
    emptied = ends(rows.failed(completed_at=now - 8 * 24 * HOUR), now - 8 * 24 * HOUR)
    with transaction.atomic():
        content.empty([emptied.pk])
    ends(rows.failed(current_step="reserve", completed_at=now - 30 * HOUR), now - 30 * HOUR)
    completes(ends(rows.complete(workflow_type="onboarding"), late), late + MINUTE)
    for state, make in rows.IN_STATE.items():
        if state not in (State.FAILED, State.CANCELLED):
            make()
    rows.open_task(rows.waiting(task=False), due_at=late)
    rows.given_up()
    rows.worker(1)
    rows.worker(2, stopped_at=now)
    open_circuit("payments")
    cause = open_cause(judged=[1, 2], code="program_full")
    charged = {"state": "done", "result": {"charge_id": "ch_1"}, "attempt": 1, "step": "execute_checkout"}
    for make in (rows.failed, partial(rows.failed, acknowledged_failure=late, failed_release="r2"), rows.parked):
        fields = {"workflow_type": "onboarding", "current_step": cause.step, "last_error_code": "program_full"}
        fields |= {"parked_on": cause.name} if make is rows.parked else {"completed_at": late}
        row = make(**fields, payload={"checkout": {"amount_cents": 14500, "currency": "USD"}})
        Effect.objects.create(workflow=row, idempotency_key=f"{row.key}", **charged)
        if make is not rows.parked:
            ends(row, late, error_code="program_full")
    rows.undelivered_message()
    rows.outbox_event()
    while look():
        pass


def opened(client: Client, url: str) -> int:
    """How many failures a list says it has, of as many workflows as are listed; or else how many rows it has."""
    response = client.get(url)
    context = response.context
    if "cl" not in context:
        return int(context["rows"][0].number if "rows" in context else context["number"])
    said = re.findall(r">(\d+) failures? of (\d+) workflow", response.content.decode())
    ((number, of),) = said or [(context["cl"].result_count,) * 2]
    assert int(of) == len(context["cl"].result_list), url
    return int(number)


def total(samples: Samples, counter: str, label: str = "") -> float:
    """The sum of a counter, of the series with that label."""
    return sum(
        number for (name, labels), number in samples.items() if name == f"{counter}_total" and label in (*labels, "")
    )


def number_in(text: str) -> int:
    return int(re.findall(r"\d+", text.replace("24 hours", ""))[0])


def targets(chart: Chart) -> Iterator[tuple[int, Column]]:
    """What fingers hit: the links of several columns, each with how many these count."""
    for target in (each for each in chart.targets if each.url):
        yield sum(int(each.told) for each in chart.columns if 0 <= each.x - target.x < target.width - 0.1), target


def on_failures(client: Client, asked: str) -> Iterator[tuple[str, int, str]]:
    """What the groups of failures say, and the page of each: the number of the group, and of its chart, are there."""
    for line in client.get("/admin/failures/", {"show": asked}).context["lines"]:
        page = client.get(incident(line.group.cause, asked)).context
        label = f"{line.what} {line.why}"
        assert line.number in {row.number for row in page["rows"]}, label
        yield from ((f"{each} ({label})", number, url) for each, number, url in of_incident(page))
        if line.number != "1":
            assert line.url == incident(line.group.cause, asked)
        if line.chart_url:
            assert line.chart.told == page["trends"]["charts"][0].told
            yield f"chart of {label}", int(line.chart.told), failed_in(interval_of(asked), line.group.cause)


def of_incident(page: Any) -> Iterator[tuple[str, int, str]]:
    for row in page["rows"]:
        yield row.label, int(row.number), row.url
        if row.held_url:
            yield f"{row.label}: {row.total}", int(row.held), row.held_url
    yield from ((f"now {bar.label}", int(bar.told), bar.url) for bar in page["bars"])
    yield from ((f"release {release}", int(number), url) for release, number, _, url in page["releases"])
    (chart,) = page["trends"]["charts"]
    yield from ((f"chart {each.at}", int(each.told), each.url) for each in chart.columns if each.url)
    yield from ((f"together {each.at}", number, each.url) for number, each in targets(chart))


def interval_of(asked: str) -> str:
    shown = next(each for each in RANGES if each.key == asked)
    return interval_text(*shown.window(timezone.now()))


def on_home(client: Client, asked: str, of_type: str = "") -> Iterator[tuple[str, int, str]]:
    """What Home says, the number, and where that leads."""
    found = client.get("/admin/", {"range": asked, "workflow_type": of_type}).context
    yield from ((label, int(number), url) for label, number, url in found["numbers"])
    for bar in (*found["states"], *found["trends"]["failures"]):
        yield bar.label, int(bar.told), bar.url
    for chart in found["trends"]["charts"]:
        yield from ((f"{chart.title} {each.at}", int(each.told), each.url) for each in chart.columns if each.url)
        for number, target in targets(chart):
            yield f"Together: {chart.title} {target.at}", number, target.url
    for piece, url in (pair for reason in found["health"].reasons for pair in reason):
        if url and re.match(r"\d+ ", piece) and "/change/" not in url:
            yield piece, number_in(piece), url
    yield from ((each.what, number_in(each.number), each.url) for each in found["first_lines"] if each.number)
    yield "need a person", int(found["needs_a_person"]), "/admin/needs-a-person/"


@pytest.mark.django_db(transaction=True)
def test_each_number_opens_as_many_as_it_says_and_the_metrics_say_the_same(as_: Login) -> None:
    now = timezone.now()
    everything(now)
    client, numbers = as_("superuser"), {}
    for asked in ("24h", "30d"):
        said = [each for each in on_home(client, asked) if each not in numbers.values()]
        said += on_failures(client, asked)
        opens = [(label, opened(client, url), url) for label, _, url in said]
        assert said == opens
        charted = client.get("/admin/", {"range": asked}).context["trends"]["charts"][2]
        shown = sum(number for label, number, _ in said if label.startswith(f"{FAILURES} 2"))
        assert (charted.title, int(charted.told)) == (FAILURES, shown)
        numbers |= {each[0]: each for each in said}
    held = {label.split(" (")[0]: number for label, number, _ in numbers.values() if "$" in label}
    assert held == {
        "Failed, and not acknowledged: $145.00": 1,
        "Failed in the last 24 hours, and failed still: $290.00": 2,
        "Failed in the last 30 days, and failed still: $290.00": 2,
        "Parked here, until it is mended: $145.00": 1,
    }
    assert numbers["Failed in the last hour, and failed still"][1] == 7
    # One more has failed before that, twice. The chart counts both, and four that were retried.
    assert numbers["Failed in the last 24 hours, and failed still"][1] == 8
    assert client.get("/admin/").context["trends"]["charts"][2].told == "13"
    of_type = [each for each in on_home(client, "24h", "onboarding") if "workflow_type=onboarding" in each[2]]
    assert of_type == [(label, opened(client, url), url) for label, _, url in of_type]
    assert {("Came in", 4), ("Completed", 1), (FAILURES, 3)} <= {(label.split(" 2")[0], n) for label, n, _ in of_type}
    scraped = told(client)
    came, completed, *_ = client.get("/admin/", {"range": "30d"}).context["trends"]["charts"]
    assert int(came.told) == total(scraped, "workflow_started")
    assert int(completed.told) == total(scraped, "workflow_finished", "COMPLETE")
    assert scraped["failed_last_hour", ()] == 7
    assert scraped["overdue_tasks", ()] == numbers["Overdue tasks"][1]
    assert sum(number for (name, _), number in scraped.items() if name == "workers") == numbers["Live workers"][1]
    for state in ("Queued", "Running", "Retrying", "Waiting", "Parked", "Reversing"):
        label = State(next(each for each in State if each.label == state)).value
        of_state = [number for (name, labels), number in scraped.items() if name == "workflows" and label in labels]
        assert sum(of_state) == numbers[state][1]

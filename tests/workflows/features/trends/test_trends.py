"""The charts of Home and of a service: what they count, beside the week before, and where their bars lead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.test import Client
from django.utils import timezone

from tests.workflows.admin.conftest import Login, as_, parcels
from workflows.console.charts import Chart, bars
from workflows.console.ranges import RANGES
from workflows.features.trends import page as trends
from workflows.models import CircuitEvent, Service
from workflows.models.rollup import Grain, Metric, Rollup

__all__ = ["as_", "parcels"]

HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(days=7)


def count(metric: Metric, number: int, ago: timedelta = timedelta(0), **labels: Any) -> None:
    """So many of an hour, and of its day, as the rollup has them."""
    at = (timezone.now() - ago).replace(minute=0, second=0, microsecond=0)
    known = {"workflow_type": "parcel", "step": "", "outcome": "", "code": "", "seconds": 0, "buckets": [], **labels}
    for grain, start in ((Grain.HOUR, at), (Grain.DAY, at.replace(hour=0))):
        same = {"grain": grain, "metric": metric, "at": start, **known}
        row, _ = Rollup.objects.get_or_create(**same, defaults={"count": 0})
        Rollup.objects.filter(pk=row.pk).update(count=row.count + number)


def charts(client: Client, asked: str = "24h") -> dict[str, Chart]:
    response = client.get("/admin/", {"range": asked})
    return {each.title.split(" ")[0].strip(","): each for each in response.context["trends"]["charts"]}


def test_home_counts_what_came_and_ended_beside_the_week_before(as_: Login) -> None:
    count(Metric.STARTED, 1200)
    count(Metric.STARTED, 7, WEEK)
    count(Metric.STARTED, 50, 2 * WEEK + 40 * DAY)
    count(Metric.FINISHED, 5, outcome="complete")
    count(Metric.FINISHED, 2, outcome="failed", step="charge", code="card_declined")
    count(Metric.FINISHED, 3, outcome="failed", step="charge", code="duplicate_of")
    count(Metric.FINISHED, 4, outcome="cancelled", step="charge")
    for asked, columns in (("7d", 28), ("30d", 30), ("no such range", 24)):
        found = charts(as_("support"), asked)
        came = "1,207" if asked == "30d" else "1,200"  # of these days the week before is one
        assert (found["Came"].told, found["Came"].told_before) == (came, "7")
        assert (found["Completed"].told, found["Failures"].told) == ("5", "2")
        assert [each.told for each in found["Came"].columns][-1] == "1,200"
        assert len(found["Came"].columns) == columns


def test_a_bar_has_a_step_and_a_code(as_: Login) -> None:
    count(Metric.FINISHED, 1, outcome="failed", step="charge", code="card_declined")
    count(Metric.FINISHED, 2, outcome="failed", step="charge", code="TypeError")
    drawn = as_("support").get("/admin/").context["trends"]["failures"]
    assert [(bar.label, bar.told, bar.percent) for bar in drawn] == [
        ("Charge: TypeError", "2", 100.0),
        ("Charge: card declined", "1", 50.0),
    ]


def test_bars_that_are_only_the_most_frequent_say_so(as_: Login) -> None:
    for number in range(trends.BARS):
        assert "the most frequent" not in as_("support").get("/admin/").content.decode()
        count(Metric.FINISHED, 1, outcome="failed", step="charge", code=f"code_{number}")
    assert "by step and code: the most frequent" in as_("support").get("/admin/").content.decode()


def test_a_service_has_how_long_it_was_not_called(as_: Login) -> None:
    now = datetime(2026, 5, 20, 12, 30, tzinfo=UTC)
    at_hours: list[tuple[str, float]] = [
        ("opened", 24 * 7 + 30),  # before the week before: open as it begins
        ("closed", 24 * 7 + 22.5),
        ("opened", 3),
        ("held", 2),
        ("tried", 1.5),
        ("closed", 1),
        ("held", 0.5),
    ]
    for kind, hours in at_hours:
        CircuitEvent.objects.create(service="programs", kind=kind, at=now - hours * HOUR)
    (chart,) = trends.of_service("programs", "24h", now)["charts"]
    assert [column.told for column in chart.columns[-5:]] == ["none", "30 min", "1 h", "30 min", "30 min"]
    assert (chart.told, chart.told_before) == ("2 h", "1 h")
    Service.objects.create(name="programs")
    assert "Not called" in as_("support").get("/admin/workflows/service/programs/change/?range=7d").content.decode()


def test_columns_are_as_high_as_their_values_and_one_is_seen_beside_many() -> None:
    start = datetime(2026, 5, 20, tzinfo=UTC)
    values = [(start, 100.0, 50.0), (start, 0.1, None), (start, None, 0.0)]
    drawn = Chart.draw("Came", "idle", (1, 2), values, tell=str)
    assert [(each.x, each.y, each.height, each.before) for each in drawn.columns] == [
        (0.0, 0.0, 60.0, 30.0),
        (80.0, 59.0, 1.0, None),
        (160.0, 60.0, 0.0, None),
    ]
    assert drawn.drawn == "M0.0 0.0h64.0v60.0h-64.0z M80.0 59.0h64.0v1.0h-64.0z"
    assert drawn.marks == "M0.0 30.0h64.0v1.5h-64.0z"
    assert bars([]) == []


def test_the_axis_says_when_and_a_finger_hits_several_columns_at_once(as_: Login) -> None:
    count(Metric.FINISHED, 2, outcome="failed", step="charge", code="card_declined")
    count(Metric.FINISHED, 3, outcome="failed", step="charge", workflow_type="onboarding")
    client = as_("support")
    failed = charts(client)["Failures"]
    assert (failed.top, failed.told) == ("5", "5")
    for asked, targets in (("24h", 12), ("7d", 7), ("30d", 10)):
        drawn = charts(client, asked)["Failures"]
        assert len(drawn.targets) == targets
        assert 330 / targets >= 24  # pixels of a chart on a phone that is 390 wide
        assert [bool(each.url) for each in drawn.targets].count(True) == 1
    only = client.get("/admin/", {"workflow_type": "parcel"}).context["trends"]
    assert [each.told for each in only["charts"]][2] == "2"
    assert [(label, is_shown) for _, label, is_shown in only["types"]] == [
        *[("All types", False), ("Onboarding", False), ("Parcel", True)]
    ]
    assert "range=24h&workflow_type=parcel" in only["types"][2][0]


def test_the_axis_has_the_hours_and_days_of_who_reads_it() -> None:
    now = datetime(2026, 5, 20, 12, 30, tzinfo=UTC)  # a Wednesday

    def axis(number: int) -> list[tuple[float, str]]:
        shown = RANGES[number]
        since, _ = shown.window(now)
        return shown.axis([since + n * shown.column for n in range(shown.number)])

    assert axis(0) == [(20.83, "18:00"), (45.83, "00:00"), (70.83, "06:00")]
    with timezone.override("Asia/Kolkata"):
        assert axis(0) == [(25.0, "00:30"), (50.0, "06:30"), (75.0, "12:30")]
        assert [label for _, label in axis(1)] == ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue"]
        assert [label for _, label in axis(2)] == ["27 Apr", "4 May", "11 May"]

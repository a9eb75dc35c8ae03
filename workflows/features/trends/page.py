"""TRENDS: how many workflows came, completed and failed, how long they took, and at which steps they failed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from workflows.console import charts, links
from workflows.console.charts import Bar, Chart, Value
from workflows.console.ranges import RANGES
from workflows.definition import definitions, wording_of_type
from workflows.errors import DUPLICATES
from workflows.features.trends import rates
from workflows.features.trends.rates import Point
from workflows.health import recent_failures
from workflows.models import CircuitEvent
from workflows.models.failure import Cause
from workflows.models.rollup import Metric
from workflows.telling import words
from workflows.telling.steps import title_of
from workflows.wording import length, name_of_code

WEEK = timedelta(days=7)
# Only the largest bars of failures are shown. The list of workflows has all.
BARS = 8
P95 = 0.95
# Beside it stands how many workflows are failed still.
FAILURES = "Failures, also those retried since"
OPENS = (CircuitEvent.Kind.OPENED, CircuitEvent.Kind.HELD)
Columns = Sequence[Sequence[Point]]


class Trends:
    """The rollup's numbers, of a type or all, for a range that ends with the hour, or day, of `now`."""

    def __init__(self, asked: str, now: datetime, workflow_type: str = "") -> None:
        self.of_type = {"workflow_type": workflow_type} if workflow_type in definitions() else {}
        self.range = next((each for each in RANGES if each.key == asked), RANGES[0])
        self.since, self.until = self.range.window(now)
        self._starts = [self.since + number * self.range.column for number in range(self.range.number)]
        self._axis = self.range.axis(self._starts)

    def page(self, drawn: Sequence[Chart], failures: Sequence[Bar]) -> dict[str, Any]:
        """The context of `trends.html`. Its table has a column for each chart."""
        rows = list(zip(*(chart.columns for chart in drawn), strict=True))
        ranges = [(self._url(range=each.key), each.label, each == self.range) for each in RANGES]
        return {"ranges": ranges, "range": self.range, "charts": drawn, "rows": rows, "failures": failures}

    def types(self) -> list[tuple[str, str, bool]]:
        """The choice of a type: address, label, and whether it is shown. Empty if there is but one."""
        known = {"": "All types", **{name: words.workflow_type(name) for name in sorted(definitions())}}
        shown = self.of_type.get("workflow_type", "")
        return [
            (self._url(workflow_type=each), label, each == shown) for each, label in known.items() if len(known) > 2
        ]

    def _url(self, **asked: str) -> str:
        asked = {"range": self.range.key, **self.of_type, **asked}
        return f"?{urlencode({name: value for name, value in asked.items() if value})}"

    # --- Numbers --------------------------------------------------------------------------------

    def read(self, metric: Metric, **asked: Any) -> tuple[Columns, Columns]:
        """The points of each column, and those of the week before."""
        return self.read_only(metric, **asked), self.read_only(metric, WEEK, **asked)

    def read_all(self, *metrics: Metric, by: Collection[str]) -> dict[Metric, tuple[Columns, Columns]]:
        """As `read`, for several metrics, in one statement."""
        times = [(self.since - earlier, self.until - earlier) for earlier in (timedelta(0), WEEK)]
        found: dict[Metric, tuple[list[list[Point]], ...]] = {
            metric: tuple([[] for _ in range(self.range.number)] for _ in times) for metric in metrics
        }
        for number, point in rates.several(metrics, times, self.range.grain, by=by, **self.of_type):
            column = (point.at - times[number][0]) // self.range.column
            found[Metric(point.metric)][number][column].append(point)
        return {metric: (now, before) for metric, (now, before) in found.items()}

    def read_only(self, metric: Metric, earlier: timedelta = timedelta(0), **asked: Any) -> Columns:
        """The points of each column, or of the columns that much earlier."""
        found: list[list[Point]] = [[] for _ in range(self.range.number)]
        for point in rates.series(
            metric, self.since - earlier, self.until - earlier, self.range.grain, **self.of_type, **asked
        ):
            found[(point.at + earlier - self.since) // self.range.column].append(point)
        return found

    def counts(self, title: str, tone: str, now: Columns, before: Columns) -> Chart:
        """A chart of counts."""
        return self._chart(title, tone, now, before, lambda points: sum(each.count for each in points), _count)

    def seconds(self, title: str, metric: Metric, now: Columns, before: Columns) -> Chart:
        """A chart of the 95th percentile, in seconds."""

        def p95(points: Sequence[Point]) -> Value:
            return rates.quantile(metric, rates.add(*(each.buckets for each in points)), P95) if points else None

        return self._chart(title, "busy", now, before, p95, _seconds)

    def durations(self, title: str, tone: str, times: Sequence[tuple[datetime, datetime]]) -> Chart:
        """A chart of the total duration of these intervals within each column."""

        def within(since: datetime, until: datetime) -> float:
            overlaps = (min(end, until) - max(start, since) for start, end in times)
            return sum((max(each, timedelta(0)) for each in overlaps), timedelta(0)).total_seconds()

        spans = [(start, start + self.range.column) for start in self._starts]
        values = [(start, within(start, end), within(start - WEEK, end - WEEK)) for start, end in spans]
        whole = (within(self.since, self.until), within(self.since - WEEK, self.until - WEEK))
        return Chart.draw(title, tone, whole, values, tell=_time, axis=self._axis)

    def _chart(
        self,
        title: str,
        tone: str,
        now: Columns,
        before: Columns,
        measure: Callable[[Sequence[Point]], Value],
        tell: Callable[[Value], str],
    ) -> Chart:
        pairs = zip(self._starts, now, before, strict=True)
        values = [(at, measure(points), measure(earlier)) for at, points, earlier in pairs]
        return Chart.draw(title, tone, (measure(_all(now)), measure(_all(before))), values, tell=tell, axis=self._axis)

    def failures(self, points: Sequence[Point]) -> list[Bar]:
        """Bars of the steps and codes with the most failures, each with the list of those workflows."""
        counted: Counter[tuple[str, str, str]] = Counter()
        for each in points:
            counted[each.workflow_type, each.step, each.code] += each.count
        worst, times = counted.most_common(BARS), recent_failures.interval_text(self.since, self.until)
        return charts.bars([(_failure(*of), number, links.failed_in(times, Cause(*of)), "bad") for of, number in worst])

    def linked(self, what: str, chart: Chart) -> Chart:
        """The same chart, with links to the workflows that its columns count: that `came`, `completed` or `ended`."""

        def url(since: datetime, until: datetime) -> str:
            return links.in_times(what, recent_failures.interval_text(since, until), **self.of_type)

        return chart.linked([*self._starts, self.until], self.range.together, url)


def _all(columns: Columns) -> list[Point]:
    return [point for column in columns for point in column]


def _count(value: Value) -> str:
    return f"{value or 0:,.0f}"


def _seconds(value: Value) -> str:
    if value is None:
        return "none"
    return f"{value:.2g} s" if value < 60 else length(value)


def _time(value: Value) -> str:
    return length(value) if value else "none"


def _failure(workflow_type: str, step: str, code: str) -> str:
    title = title_of(wording_of_type(workflow_type), step) or words.plain(step)
    return f"{title}: {name_of_code(code or 'no code')}"


# --- Pages ----------------------------------------------------------------------------------------


def of_workflows(asked: str, now: datetime, workflow_type: str = "") -> dict[str, Any]:
    """Trends of the workflows of a type, or all, for Home. Counts each failure, also those retried since.

    Duplicates do not count.
    """
    trends = Trends(asked, now, workflow_type)
    labels = ["workflow_type", "step", "code", "outcome"]
    read = trends.read_all(Metric.STARTED, Metric.FINISHED, Metric.ACTIVE, by=labels)
    failed, failed_before = (
        _only(columns, lambda point: point.outcome == "failed" and point.code not in DUPLICATES)
        for columns in read[Metric.FINISHED]
    )
    completed = (_only(columns, lambda point: point.outcome == "complete") for columns in read[Metric.FINISHED])
    drawn = [
        trends.linked("came", trends.counts("Came in", "idle", *read[Metric.STARTED])),
        trends.linked("completed", trends.counts("Completed", "good", *completed)),
        trends.linked("ended", trends.counts(FAILURES, "bad", failed, failed_before)),
        trends.seconds("Took, waiting left out (p95)", Metric.ACTIVE, *read[Metric.ACTIVE]),
    ]
    return {**trends.page(drawn, trends.failures(_all(failed))), "types": trends.types()}


def of_failures(
    asked: str, now: datetime, causes: Collection[tuple[str, str, str]]
) -> dict[tuple[str, str, str], Chart]:
    """A chart of failures, of all releases, for each of these types, steps and codes."""
    trends = Trends(asked, now)
    labels = ["workflow_type", "step", "code"]
    both = [_by_cause(columns) for columns in trends.read(Metric.FINISHED, by=labels, outcome="failed")]
    return {cause: trends.counts("Failed", "bad", *(of[cause] for of in both)) for cause in causes}


def _by_cause(columns: Columns) -> Mapping[tuple[str, str, str], Columns]:
    """The points of each cause, in columns."""
    found: dict[tuple[str, str, str], list[list[Point]]] = defaultdict(lambda: [[] for _ in columns])
    for number, points in enumerate(columns):
        for each in points:
            found[each.workflow_type, each.step, each.code][number].append(each)
    return found


def of_service(name: str, asked: str, now: datetime) -> dict[str, Any]:
    """Trends of a service or a cause: for how long it was not called."""
    trends = Trends(asked, now)
    open_times = _open_times(name, trends.since - WEEK, now)
    return trends.page([trends.durations("Not called", "bad", open_times)], [])


def _open_times(name: str, since: datetime, now: datetime) -> list[tuple[datetime, datetime]]:
    """The intervals in which the circuit was open, or held, since a time."""
    changes = CircuitEvent.objects.filter(service=name, kind__in=[*OPENS, CircuitEvent.Kind.CLOSED]).order_by("id")
    before = changes.filter(at__lt=since).last()
    times: list[tuple[datetime, datetime]] = []
    opened_at = before.at if before and before.kind in OPENS else None
    for each in changes.filter(at__gte=since):
        if each.kind in OPENS:
            opened_at = opened_at or each.at
        elif opened_at:
            times, opened_at = [*times, (opened_at, each.at)], None
    return [*times, (opened_at, now)] if opened_at else times


def _only(columns: Columns, condition: Callable[[Point], bool]) -> Columns:
    return [[point for point in column if condition(point)] for column in columns]

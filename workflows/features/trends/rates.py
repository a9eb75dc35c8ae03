"""RATES: reads from the rollup how many workflows came, finished and failed, and how long they took.

    series(Metric.FINISHED, since, until, Grain.HOUR, by=["outcome"])  # for a chart: hours of the last day
    totals([Metric.STEP], by=["workflow_type", "step", "outcome"])  # since the beginning, for counters
    quantile(Metric.ACTIVE, point.buckets, 0.95)                    # seconds; None if there was nothing

`Metric` defines what each counts, and its labels. The last ten seconds may be missing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from workflows.models import StepOutcome
from workflows.models.rollup import BOUNDS, PARKED, Grain, Metric
from workflows.postgres import often
from workflows.postgres.statements import fetch_all

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LABELS = ("workflow_type", "step", "outcome", "code")
# Outcomes of a step whose code did not run, so that its time says nothing; and its failures.
DID_NOT_RUN = (StepOutcome.RECORDED, StepOutcome.SKIPPED, PARKED)
FAILED = (StepOutcome.FAILED, StepOutcome.BEST_EFFORT_FAILED)


@dataclass(frozen=True, slots=True)
class Point:
    """The numbers of one combination of labels in one period, or in total. Labels that are not asked for are empty.

    `seconds` is the sum. `buckets` counts by duration: one number for each of `BOUNDS[metric]`, up to and including
    that many seconds and above the previous bound, and one for anything longer. Empty without bounds.
    """

    metric: str
    at: datetime
    count: int
    seconds: float
    buckets: tuple[int, ...]
    workflow_type: str = ""
    step: str = ""
    outcome: str = ""
    code: str = ""


def series(
    metric: Metric,
    since: datetime,
    until: datetime,
    grain: Grain,
    *,
    by: Collection[str] = (),
    **only: str,
) -> list[Point]:
    """The minutes, hours or days that start at or after `since` and before `until`, oldest first.

    `by` names the `LABELS` to distinguish; the others are summed. `only` gives labels a required value:
    `workflow_type="onboarding"`. A period without events has no point. Minutes are stored for two days, hours for 35
    days, days for 400.
    """
    return [point for _, point in _read([metric], grain, by, only, [(since, until)])]


def several(
    metrics: Collection[Metric],
    times: Sequence[tuple[datetime, datetime]],
    grain: Grain,
    *,
    by: Collection[str] = (),
    **only: str,
) -> list[tuple[int, Point]]:
    """As `series`, of several metrics and times in one statement: each point with the number of its time, from 0."""
    return _read(metrics, grain, by, only, times)


def totals(metrics: Collection[Metric], *, by: Collection[str] = LABELS, **only: str) -> list[Point]:
    """The totals of all time. They never go down, except `vanished` attempts of which more becomes known."""
    return [point for _, point in _read(metrics, Grain.TOTAL, by, only, [(EPOCH, EPOCH + timedelta(days=1))])]


def new_releases(since: datetime, until: datetime, grain: Grain) -> list[tuple[str, datetime]]:
    """The releases whose first attempt ended in that time, with the start of its minute, hour or day."""
    return [
        (release, at)
        for release, at in fetch_all(
            """SELECT code, min(at) FROM workflows_rollup WHERE grain = %s AND metric = %s GROUP BY code
               HAVING min(at) >= %s AND min(at) < %s ORDER BY 2, 1""",
            [grain, Metric.RELEASE, since, until],
        )
    ]


def _read(
    metrics: Collection[Metric],
    grain: Grain,
    by: Collection[str],
    only: dict[str, str],
    times: Sequence[tuple[datetime, datetime]],
) -> list[tuple[int, Point]]:
    if unknown := {*by, *only} - {*LABELS}:
        raise TypeError(f"no label of the rollup: {', '.join(sorted(unknown))}")
    labels = [label for label in LABELS if label in by]
    most = max(map(len, BOUNDS.values())) + 1
    buckets = ", ".join(f"coalesce(sum(buckets[{n}]), 0)::bigint" for n in range(1, most + 1))
    fetch = often.fetch_all if grain == Grain.TOTAL else fetch_all
    rows = fetch(
        f"""SELECT {", ".join(["number - 1", "metric", "at", *labels])}, sum(count)::bigint, sum(seconds), {buckets}
                  FROM unnest(%(since)s::timestamptz[], %(until)s::timestamptz[])
                       WITH ORDINALITY AS one (since, until, number)
                  JOIN workflows_rollup ON at >= one.since AND at < one.until
                 WHERE grain = %(grain)s AND metric = ANY (%(metrics)s)
                       {" ".join(f"AND {label} = %({label})s" for label in only)}
                 GROUP BY {", ".join(["number", "metric", "at", *labels])}
                 ORDER BY {", ".join(["at", "metric", *labels])}""",  # noqa: S608 (the names are ours)
        {
            "grain": grain,
            "metrics": list(metrics),
            "since": [since for since, _ in times],
            "until": [until for _, until in times],
            **only,
        },
    )
    n = len(labels)
    return [
        (
            number,
            Point(
                *(metric, at, row[n], row[n + 1], _bounded(metric, row[n + 2 :])),
                **dict(zip(labels, row, strict=False)),
            ),
        )
        for number, metric, at, *row in rows
    ]


def _bounded(metric: str, buckets: Sequence[int]) -> tuple[int, ...]:
    return tuple(buckets[: len(BOUNDS[metric]) + 1]) if metric in BOUNDS else ()


def quantile(metric: Metric, buckets: Sequence[int], share: float) -> float | None:
    """The number of seconds that `share` of them took at most, estimated like PromQL's `histogram_quantile`.

    None if there were none. A result beyond the last bound is that bound.
    """
    bounds, left = BOUNDS[metric], share * sum(buckets)
    if not any(buckets):
        return None
    lower = 0.0
    for bound, number in zip(bounds, buckets, strict=False):
        if number and number >= left:
            return lower + (bound - lower) * left / number
        left, lower = left - number, float(bound)
    return lower


def add(*buckets: Sequence[int]) -> tuple[int, ...]:
    """The sum of the buckets of several points of one metric."""
    return tuple(map(sum, zip(*buckets, strict=True)))

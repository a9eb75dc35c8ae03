"""`manage.py stats`: what came, completed and failed in the last hours or days, how long it took, what steps did."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.core.management.base import CommandError
from django.utils import timezone

from workflows.definition import definitions, wording_of_type
from workflows.health import rates
from workflows.health.rates import Point
from workflows.management.arguments import HelpInLines, duration
from workflows.management.database import DatabaseCommand
from workflows.models.rollup import Grain, Metric
from workflows.wording import is_explained, length

HELP = """\
What came, completed and failed, how long it took, and what the steps did, by type.

The numbers are those of /metrics and of the charts on Home, up to ten seconds ago, from a full minute,
hour or day (UTC) on. p50 and p95 are what half, and 95 of 100, took at the most: an estimate, between the
bounds of the histogram. Waits are those for a person, a signal, a time, or a service that is away.
"""

EXAMPLES = """\
examples:
  manage.py stats                                  the last hour
  manage.py stats --last 7d --type onboarding
  manage.py stats --last 1d --json
"""

K = TypeVar("K")

# Up to which time each is summed up: it is kept that long, and its part before the start is of no account.
GRAINS = {Grain.MINUTE: timedelta(hours=12), Grain.HOUR: timedelta(days=34), Grain.DAY: timedelta(days=399)}
UNIT_OF = {Grain.MINUTE: timedelta(minutes=1), Grain.HOUR: timedelta(hours=1), Grain.DAY: timedelta(days=1)}


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds that half, and 95 of 100, took at the most; None if nothing did."""

    p50: float | None
    p95: float | None

    @classmethod
    def of(cls, metric: Metric, points: Sequence[Point]) -> Took:
        buckets = rates.add(*(point.buckets for point in points)) if points else ()
        return cls(rates.quantile(metric, buckets, 0.5), rates.quantile(metric, buckets, 0.95))


@dataclass(frozen=True, slots=True)
class OfStep:
    step: str
    runs: int
    failed: int
    took: Took


@dataclass(frozen=True, slots=True)
class OfFailure:
    step: str
    code: str
    workflows: int


@dataclass(frozen=True, slots=True)
class OfType:
    """`failed_explained`: of `failed`, those that are the patient's own doing, by the words for their code.

    `took`: from the submission, or a retry, to the end; `active`: without the waits. `slo_p95`: the limit for that, in
    seconds.
    """

    workflow_type: str
    came: int
    completed: int
    failed: int
    failed_explained: int
    cancelled: int
    active: Took
    took: Took
    slo_p95: float | None
    steps: list[OfStep]
    failures: list[OfFailure]
    undone: dict[str, int]
    attempts: dict[str, int]


def look(workflow_type: str, since: datetime, until: datetime, grain: Grain) -> OfType:
    """What the rollup has of a type, of the minutes, hours or days that start within that time."""

    def read(metric: Metric, *labels: str) -> list[Point]:
        return rates.series(metric, since, until, grain, by=labels, workflow_type=workflow_type)

    finished = read(Metric.FINISHED, "outcome", "step", "code")
    failed = [point for point in finished if point.outcome == "failed"]
    wording, definition = wording_of_type(workflow_type), definitions().get(workflow_type)
    return OfType(
        workflow_type,
        came=_sum(read(Metric.STARTED)),
        completed=_sum(point for point in finished if point.outcome == "complete"),
        failed=_sum(failed),
        failed_explained=_sum(point for point in failed if is_explained(wording, point.code)),
        cancelled=_sum(point for point in finished if point.outcome == "cancelled"),
        active=Took.of(Metric.ACTIVE, read(Metric.ACTIVE)),
        took=Took.of(Metric.FINISHED, finished),
        slo_p95=definition.slo.p95.total_seconds() if definition and definition.slo else None,
        steps=list(
            _steps(read(Metric.STEP, "step", "outcome"), [step.name for step in definition.steps] if definition else [])
        ),
        failures=[OfFailure(*of, number) for of, number in _counted(failed, lambda at: (at.step, at.code))],
        undone=dict(_counted(read(Metric.UNDO, "outcome"), lambda at: at.outcome)),
        attempts=dict(_counted(read(Metric.ATTEMPT, "outcome"), lambda at: at.outcome)),
    )


def _steps(points: Sequence[Point], order: Sequence[str]) -> Iterator[OfStep]:
    """In the definition's order; those that it no longer has last."""
    ran = [point for point in points if point.outcome not in rates.DID_NOT_RUN]
    names = {point.step for point in ran}
    for name in [*(each for each in order if each in names), *sorted(names - {*order})]:
        own = [point for point in ran if point.step == name]
        failed = _sum(point for point in own if point.outcome in rates.FAILED)
        yield OfStep(name, _sum(own), failed, Took.of(Metric.STEP, own))


def _sum(points: Iterable[Point]) -> int:
    return sum(point.count for point in points)


def _counted(points: Iterable[Point], key: Callable[[Point], K]) -> list[tuple[K, int]]:
    """Those with the most first; what is vanished until more is known may be none any more."""
    counted: Counter[K] = Counter()
    for point in points:
        counted[key(point)] += point.count
    return (+counted).most_common()


# --- The command ----------------------------------------------------------------------------------


def _last(text: str) -> timedelta:
    with suppress(ArgumentTypeError):
        if timedelta(0) < (last := duration(text)) <= max(GRAINS.values()):
            return last
    raise ArgumentTypeError(f"{text!r} is not a time: give 30m, 6h or 7d, up to 399d")


class Command(HelpInLines, DatabaseCommand):
    help = HELP
    examples = EXAMPLES

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--last",
            type=_last,
            default=timedelta(hours=1),
            metavar="TIME",
            help="30m, 6h, 7d: up to 399d (default: 1h)",
        )
        add("--type", default="", dest="only", metavar="NAME", help="this type only")
        add("--json", action="store_true", dest="in_json", help="a JSON object of all numbers; durations in seconds")

    def handle(self, *args: Any, last: timedelta, only: str, in_json: bool, **options: Any) -> None:
        until = timezone.now()
        grain = next(grain for grain, longest in GRAINS.items() if last <= longest)
        since = until - last
        since -= (since - rates.EPOCH) % UNIT_OF[grain]
        counted = {point.workflow_type for point in rates.totals([Metric.STARTED], by=["workflow_type"])}
        known = sorted(counted | {*definitions()})
        if only and only not in known:
            raise CommandError(f"There is no type {only!r}, but {', '.join(known)}.")
        found = [look(each, since, until, grain) for each in ([only] if only else known)]
        if in_json:
            self._dump(since, until, found)
            return
        self.stdout.write(f"From {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC.")
        for each in found:
            self._say(each)
        if not counted:
            self.stdout.write("\nNothing is counted yet. Workers do that: does one run?")

    def _dump(self, since: datetime, until: datetime, found: Sequence[OfType]) -> None:
        told = {"since": since.isoformat(), "until": until.isoformat(), "types": [asdict(each) for each in found]}
        self.stdout.write(json.dumps(told, indent=2))

    def _say(self, of: OfType) -> None:
        own = f"{of.failed_explained:,} by the patient's own doing" if of.failed else ""
        slo = f"limit {_seconds(of.slo_p95)}" if of.slo_p95 else ""
        self.stdout.write(f"\n{self.style.MIGRATE_HEADING(of.workflow_type)}")
        self._row("came", f"{of.came:,}")
        self._row("completed", f"{of.completed:,}")
        self._row("failed", f"{of.failed:,}", own)
        self._row("cancelled", f"{of.cancelled:,}")
        self._row("took: p50, p95", _seconds(of.took.p50), _seconds(of.took.p95))
        self._row("  waits left out", _seconds(of.active.p50), _seconds(of.active.p95), slo)
        for name, numbers in ("attempts", of.attempts), ("calls undone", of.undone):
            if numbers:
                self._row(name, "", ", ".join(f"{key} {number:,}" for key, number in numbers.items()))
        if of.steps:
            self.stdout.write("")
            self._row("step", "runs", "failed", "p50", "p95")
        for step in of.steps:
            self._row(step.step, f"{step.runs:,}", f"{step.failed:,}", _seconds(step.took.p50), _seconds(step.took.p95))
        if of.failures:
            self.stdout.write("")
            self._row("failed at", "workflows", "code")
        for failure in of.failures:
            self._row(failure.step, f"{failure.workflows:,}", failure.code)

    def _row(self, name: str, *cells: str) -> None:
        self.stdout.write(f"  {name:38}{'  '.join(f'{cell:>9}' for cell in cells)}".rstrip())


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.2g} s" if value < 60 else length(value)

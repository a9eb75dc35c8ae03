"""How long workflows take, for Home's sentence; and all counters, for `/metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from workflows.definition import definitions
from workflows.features.trends import counters, rates
from workflows.health.families import Family, Histogram, Section
from workflows.health.figures import Figures
from workflows.health.reasons import About, Level, Piece, Reason, reason
from workflows.models.rollup import Grain, Metric
from workflows.telling import words
from workflows.wording import length

# A 95th percentile needs at least 20 runs.
LATELY, ENOUGH = timedelta(minutes=15), 20


@dataclass(frozen=True, slots=True)
class Slow:
    """A type whose slowest 5% have lately taken longer than its `slo` promises, in seconds without waits."""

    workflow_type: str
    p95: float
    promised: float


@dataclass(frozen=True, slots=True)
class Promises(Figures):
    slow: list[Slow] = field(default_factory=list)

    def reasons(self, at: datetime) -> Mapping[About, Iterable[Reason]]:
        return {About.PROMISES: self._broken()}

    def _broken(self) -> Iterator[Reason]:
        for each in self.slow:
            takes = f"the slowest 5% take {length(each.p95)} (the promise is {length(each.promised)})"
            yield reason(Level.SLOW, Piece(f"{words.workflow_type(each.workflow_type)} is slow: {takes}"))

    def families(self, at: datetime) -> Mapping[Section, Iterable[Family | Histogram]]:
        return {Section.SINCE_THE_BEGINNING: counters.families()}


def slow(at: datetime) -> list[Slow]:
    minutes = rates.series(Metric.ACTIVE, at - LATELY, at, Grain.MINUTE, by=["workflow_type"])
    found = []
    for name, definition in sorted(definitions().items()):
        buckets = rates.add(*(point.buckets for point in minutes if point.workflow_type == name))
        p95 = rates.quantile(Metric.ACTIVE, buckets, 0.95) if sum(buckets) >= ENOUGH else None
        if definition.slo and p95 and p95 > (promised := definition.slo.p95.total_seconds()):
            found.append(Slow(name, p95, promised))
    return found

"""COUNTERS: the totals of the `rollup`, as Prometheus' counters and histograms.

Combinations that a definition can produce start at 0: otherwise Prometheus would miss the first increase. Failures by
code do not, because a step may raise any code; no alert uses their rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from workflows.definition import definitions, wording_of_type
from workflows.features.trends import rates
from workflows.features.trends.rates import Point
from workflows.health.families import Family, Histogram
from workflows.models import Attempt, StepOutcome
from workflows.models.rollup import BOUNDS, PARKED, Metric
from workflows.wording import is_explained

Labels = tuple[str, ...]


def families() -> Iterator[Family | Histogram]:
    found: dict[str, list[Point]] = {metric: [] for metric in Metric}
    for point in rates.totals(Metric):
        found[point.metric].append(point)
    types = sorted(definitions())
    yield from _of_workflows(found, types)
    yield from _of_steps(found, [(of, step.name) for of in types for step in definitions()[of].steps])
    yield _counter(
        "workflow_compensations",
        "Calls that were to be undone, by what came of it.",
        ["workflow_type", "outcome"],
        found[Metric.UNDO],
        lambda each: (each.workflow_type, each.outcome),
        zeros=[(of, outcome) for of in types for outcome in _UNDONE],
    )
    yield from _durations(found)


def _of_workflows(found: Mapping[str, list[Point]], types: Sequence[str]) -> Iterator[Family]:
    yield _counter(
        "workflow_started",
        "Workflows that came.",
        ["workflow_type"],
        found[Metric.STARTED],
        lambda each: (each.workflow_type,),
        zeros=[(each,) for each in types],
    )
    yield _counter(
        "workflow_finished",
        "Workflows that came to rest; one that a person retries does so again. explained: a failure that is the "
        "sender's own, by the words for its code.",
        ["workflow_type", "status", "cancelled", "explained"],
        found[Metric.FINISHED],
        _finish,
        zeros=[(of, *labels) for of in types for labels in (_COMPLETE, *_FAILED)],
    )
    yield _counter(
        "workflow_attempts",
        "Attempts that ended, by how; of one that vanished more may become known later.",
        ["workflow_type", "outcome"],
        found[Metric.ATTEMPT] + found[Metric.CORRECTED],  # so that a counter never goes down
        lambda each: (each.workflow_type, each.outcome or Attempt.Outcome.VANISHED),
        zeros=[(of, outcome) for of in types for outcome in Attempt.Outcome],
    )


def _of_steps(found: Mapping[str, list[Point]], of_steps: Sequence[tuple[str, str]]) -> Iterator[Family]:
    steps = found[Metric.STEP]
    failed = [each for each in steps if each.outcome in rates.FAILED]
    yield _counter(
        "workflow_steps",
        "What attempts did at each step.",
        ["workflow_type", "step", "outcome"],
        steps,
        lambda each: (each.workflow_type, each.step, each.outcome),
        zeros=[(*of, outcome) for of in of_steps for outcome in _RAN],
    )
    yield _counter(
        "workflow_failed_runs",
        "Failures of a step, tries that are repeated too, whatever their code. explained: as above.",
        ["workflow_type", "step", "explained"],
        failed,
        lambda each: (each.workflow_type, each.step, _explained(each)),
        zeros=[(*of, explained) for of in of_steps for explained in ("false", "true")],
    )
    yield _counter(
        "workflow_step_failures",
        "The same by code or class; one that nobody foresaw is told from its first failure on.",
        ["workflow_type", "step", "code", "explained"],
        failed,
        lambda each: (each.workflow_type, each.step, each.code, _explained(each)),
    )
    yield _counter(
        "workflow_redundant_reruns",
        "Runs of a step that an earlier attempt of the workflow had done already.",
        ["workflow_type", "step"],
        found[Metric.RERUN],
        lambda each: (each.workflow_type, each.step),
        zeros=of_steps,
    )


def _durations(found: Mapping[str, list[Point]]) -> Iterator[Histogram]:
    ran = [each for each in found[Metric.STEP] if each.outcome not in rates.DID_NOT_RUN]
    finished = found[Metric.FINISHED]
    of_type = ["workflow_type"]
    yield _histogram("workflow_duration_seconds", "From the submission, or a retry, to rest.", of_type, finished)
    yield _histogram("workflow_waiting_seconds", "Of that, waits for anything.", of_type, found[Metric.WAITING])
    yield _histogram("workflow_active_seconds", "Of that, all the rest.", of_type, found[Metric.ACTIVE])
    yield _histogram("workflow_step_duration_seconds", "Runs of a step.", ["workflow_type", "step"], ran)


_UNDONE = (StepOutcome.UNDONE, StepOutcome.UNDO_FAILED, StepOutcome.NOT_DONE, StepOutcome.KEPT)
_RAN = [outcome for outcome in (*StepOutcome, PARKED) if outcome not in _UNDONE]
_COMPLETE = ("COMPLETE", "false", "false")
_FAILED = [("FAILED", "false", "false"), ("FAILED", "false", "true")]


def _finish(point: Point) -> Labels:
    if point.outcome == "complete":
        return (point.workflow_type, *_COMPLETE)
    return point.workflow_type, "FAILED", str(point.outcome == "cancelled").lower(), _explained(point)


def _explained(point: Point) -> str:
    return str(is_explained(wording_of_type(point.workflow_type), point.code)).lower()


def _counter(
    name: str,
    says: str,
    labels: list[str],
    points: Sequence[Point],
    labels_of: Callable[[Point], Labels],
    *,
    zeros: Iterable[Labels] = (),
) -> Family:
    """A counter: the sum of the points' counts, by the values of their labels."""
    counted: Counter[Labels] = Counter(dict.fromkeys(zeros, 0))
    for point in points:
        counted[labels_of(point)] += point.count
    return Family(name, says, labels, sorted(counted.items()), is_counter=True)


def _histogram(name: str, says: str, labels: list[str], points: Sequence[Point]) -> Histogram:
    by_labels: dict[Labels, list[Point]] = {}
    for point in points:
        by_labels.setdefault(tuple(getattr(point, label) for label in labels), []).append(point)
    return Histogram(name, says, labels, [(of, *_timed(those)) for of, those in sorted(by_labels.items())])


def _timed(points: Sequence[Point]) -> tuple[list[tuple[str, float]], float]:
    """The cumulative counts up to each bound, and the seconds of all together."""
    bounds = [*map(str, map(float, BOUNDS[points[0].metric])), "+Inf"]
    numbers = accumulate(rates.add(*(each.buckets for each in points)))
    return list(zip(bounds, numbers, strict=True)), sum(each.seconds for each in points)

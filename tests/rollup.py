"""What the rollup must say, counted in Python from the rows themselves."""

from __future__ import annotations

from collections import Counter

from django.db import transaction

from workflows.features.trends import rollup
from workflows.features.trends.rates import LABELS, totals
from workflows.models import Attempt, Event, Workflow
from workflows.models.rollup import Grain, Metric, Rollup

Counts = Counter[tuple[str, ...]]

VERDICTS = {Event.Kind.FAILED: "failed", Event.Kind.CANCELLED: "cancelled", Event.Kind.DUPLICATE: "failed"}
# Each finish has one of these numbers, of all three.
OF_FINISHES = (Metric.FINISHED, Metric.ACTIVE, Metric.WAITING)


def plain() -> Counts:
    """By metric, type and labels; a workflow that was retried has finished more than once."""
    types = dict(Workflow.objects.values_list("pk", "workflow_type"))
    counted: Counts = Counter((Metric.STARTED, of_type, "", "", "") for of_type in types.values())
    for attempt in Attempt.objects.exclude(closed_at=None):
        of_type = types[attempt.workflow_id]
        counted[Metric.ATTEMPT, of_type, "", attempt.outcome, ""] += 1
        if attempt.release:
            counted[Metric.RELEASE, "", "", "", attempt.release] += 1
        for each in attempt.steps:
            metric = Metric.UNDO if each.get("undo") else Metric.STEP
            code = each.get("error_code") or each.get("error_class") or ""
            outcome = "parked" if code in ("braked", "service_unavailable", "service_busy") else each["outcome"]
            counted[metric, of_type, each["step"], outcome, code] += 1
    histories: dict[int, list[Event]] = {}
    for event in Event.objects.order_by("id"):
        histories.setdefault(event.workflow_id, []).append(event)
    for pk, events in histories.items():
        verdict = ("", "", "")
        for event, following in zip(events, [*events[1:], None], strict=True):
            if event.kind == Event.Kind.COMPLETED:
                _finished(counted, types[pk], ("", "complete", ""))
            elif event.kind == Event.Kind.COMPENSATED:
                _finished(counted, types[pk], verdict)
            elif event.kind in VERDICTS:
                verdict = verdict_of(event)
                if following is None or following.kind != Event.Kind.COMPENSATING:
                    _finished(counted, types[pk], verdict)
    return counted


def verdict_of(event: Event) -> tuple[str, str, str]:
    code = event.detail.get("error_code") or event.detail.get("error_class") or ""
    return event.step, VERDICTS[Event.Kind(event.kind)], code


def _finished(counted: Counts, of_type: str, labels: tuple[str, str, str]) -> None:
    counted[Metric.FINISHED, of_type, *labels] += 1
    for metric in (Metric.ACTIVE, Metric.WAITING):
        counted[metric, of_type, "", "", ""] += 1


def added_up() -> Counts:
    """What the rollup says, after a look at what is new; the sums of each grain are the same."""
    while look():
        pass
    return told()


def look() -> int:
    """Add up one slice; how many rows it changed, if it has left something."""
    with transaction.atomic():
        return rollup.add_up().changed


def told() -> Counts:
    by_grain: dict[str, Counts] = {grain: Counter() for grain in Grain}
    for row in Rollup.objects.exclude(metric__in=[Metric.CORRECTED, Metric.RERUN]):
        by_grain[row.grain][row.metric, *(getattr(row, label) for label in LABELS)] += row.count
    assert all(of_grain == by_grain[Grain.TOTAL] for of_grain in by_grain.values())
    in_buckets: Counts = Counter()
    for point in totals([*OF_FINISHES, Metric.STEP, Metric.UNDO]):
        in_buckets[point.metric, *(getattr(point, label) for label in LABELS)] += sum(point.buckets)
    assert in_buckets.items() <= by_grain[Grain.TOTAL].items()
    return by_grain[Grain.TOTAL]

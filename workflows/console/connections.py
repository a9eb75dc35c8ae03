"""Rows of other tables that a workflow's page shows: its waits, signals and children."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.utils import timezone
from django.utils.safestring import SafeString

from workflows.health.bounded import COUNT_LIMIT
from workflows.models import ManualTask, Signal, Wait, Workflow
from workflows.telling import words

WAITS_SHOWN = 50
SIGNALS_SHOWN = 50
CHILDREN_SHOWN = 100


def related_rows(workflow: Workflow) -> dict[str, Any]:
    waits = list(
        Wait.objects.filter(workflow=workflow)
        .select_related("signal", "manual_task")
        .defer("result", "signal__payload", "signal__linking_id", "signal__dedupe_key", "manual_task__facts")
        .order_by("-id")[: WAITS_SHOWN + 1]
    )
    signals = _signals(workflow, waits)
    return {
        "waits": [(wait, _outcome(workflow, wait, waits)) for wait in waits[:WAITS_SHOWN]],
        "more_waits": len(waits) > WAITS_SHOWN,
        "signals": [(signal, _state(signal, waits)) for signal in signals[:SIGNALS_SHOWN]],
        "more_signals": len(signals) > SIGNALS_SHOWN,
        **_children(workflow),
    }


def _outcome(workflow: Workflow, wait: Wait, waits: Sequence[Wait]) -> str:
    """The outcome of a wait, in words; `waits` are the workflow's newest."""
    if wait.outcome:
        return f"{words.plain(wait.outcome)}{_what_follows(workflow, wait, waits)}"
    if wait.superseded or _is_closed(wait):
        return "Nobody asks for it any more"
    if workflow.status != Workflow.Status.PENDING:
        return "The workflow finished without it"
    if workflow.compensating and wait.kind != Wait.Kind.APPROVAL:  # a compensation asks only people
        return "The workflow goes no further"
    return "Waiting" if wait.deadline > timezone.now() else "Its time is over"


def _what_follows(workflow: Workflow, wait: Wait, waits: Sequence[Wait]) -> str:
    if any(wait.name == other.name and wait.generation < other.generation for other in waits):
        return "; waited for again since"
    has_failed = workflow.status == Workflow.Status.FAILED or workflow.compensating
    return "; a retry waits for it again" if wait.superseded and has_failed else ""


def _is_closed(wait: Wait) -> bool:
    task: ManualTask | None = getattr(wait, "manual_task", None)
    return task is not None and task.state == ManualTask.State.CLOSED


# --- Signals ------------------------------------------------------------------------------------


def _signals(workflow: Workflow, waits: Sequence[Wait]) -> list[Signal]:
    """Signals sent to the workflow, open signals of its linking id, and the signals that answered its waits."""
    rows = Signal.objects.defer("payload", "dedupe_key", "linking_id").order_by("-id")
    found = list(rows.filter(workflow=workflow)[: SIGNALS_SHOWN + 1])
    if workflow.linking_id is not None:
        found += rows.filter(linking_id=workflow.linking_id, closed_at=None)[: SIGNALS_SHOWN + 1]
    found += [wait.signal for wait in waits if wait.signal]
    return sorted({signal.pk: signal for signal in found}.values(), key=lambda signal: -signal.pk)


def _state(signal: Signal, waits: Sequence[Wait]) -> str:
    if any(wait.signal_id == signal.pk for wait in waits):
        return "used"
    if signal.ignored:
        return "ignored"
    return "used" if signal.closed_at else "open"


# --- Children -----------------------------------------------------------------------------------


def _children(workflow: Workflow) -> dict[str, Any]:
    """The first children, in the order of their unique index (by wait, then key), with counts of all."""
    children = Workflow.objects.filter(parent=workflow)
    statuses = list(children.values_list("status", flat=True)[: COUNT_LIMIT + 1])
    counts = Counter(statuses[:COUNT_LIMIT])
    shown: list[tuple[Workflow, SafeString]] = []
    if statuses:
        told = ("child_key", "parent_wait", "emptied_at", "waiting_for", "last_error_code")
        first = children.with_state().only(*told).order_by("parent_wait", "child_key")
        shown = [(child, words.state_badge(child)) for child in first[:CHILDREN_SHOWN]]
    return {
        "children": shown,
        "children_counts": [f"{counts[status]:,} {status.lower()}" for status in Workflow.Status if counts[status]],
        "children_left_out": len(statuses) - len(shown),
        "children_beyond_limit": len(statuses) > COUNT_LIMIT,
    }

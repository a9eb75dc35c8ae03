"""UNKNOWN TYPES: a workflow whose type this release does not know is left to a release that does; it never fails.

A look that decides nothing opens no attempt: 10,000 such rows would make 14 million attempts a day.
"""

from __future__ import annotations

from datetime import timedelta
from random import uniform

from workflows.definition import definitions
from workflows.models import Event, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import PAUSED
from workflows.postgres.statements import execute, fetch_one
from workflows.state import attempt_log, history, transitions

# Seconds. The row is rescheduled for as long as it has waited already, so each delay doubles. A deploy takes minutes; a
# row that has waited longer waits for a worker that starts.
FIRST_DELAY, MAX_DELAY, JITTER = 60.0, 3600.0, 0.1

# Rows to make due in one statement.
SLICE = 1000


def reschedule(workflow: Workflow) -> None:
    """Reschedule a workflow whose row lock the caller's transaction holds. The history records only the first look.

    An attempt that is still open has lost its worker, and is closed as vanished, as when a new attempt starts.
    """
    execute(f"{attempt_log.closing_as_vanished('true')} SELECT FROM vanished", {"workflow_id": workflow.pk})
    if workflow.waiting_for == PAUSED:  # or it would run with the next release, and not be paused any more
        transitions.pause(workflow.pk)
        return
    reason = f"It waits for {transitions.release_awaited(workflow.workflow_type)}."
    waited = 0.0
    if workflow.waiting_for == transitions.release_awaited(workflow.workflow_type):
        waited = _seconds_since(workflow.pk, reason)
    else:
        history.record(workflow.pk, Event.Kind.RESCHEDULED, reason=reason)
    delay = min(max(waited, FIRST_DELAY), MAX_DELAY) * uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 (no secret)
    transitions.await_release(
        workflow.pk, ClockTimestamp() + timedelta(seconds=delay), workflow_type=workflow.workflow_type
    )


def _seconds_since(workflow_id: int, reason: str) -> float:
    """Seconds since the workflow began to wait for that reason, according to its history; 0 if unknown."""
    row = fetch_one(
        """SELECT coalesce(extract(epoch FROM clock_timestamp() - max(at)), 0)::float FROM workflows_event
            WHERE workflow_id = %s AND kind = 'put_back' AND detail->>'reason' = %s""",
        [workflow_id, reason],
    )
    return float(row[0]) if row else 0.0


def make_due(queue: str) -> int:
    """Make due the rows of `queue` that waited for a release like this one; return how many. Commits each slice."""
    known = list(definitions())
    made = last = transitions.make_known_due(queue, known, limit=SLICE)
    while last == SLICE:  # not until none is left: a worker of the other release may be rescheduling them again
        made += (last := transitions.make_known_due(queue, known, limit=SLICE))
    return made

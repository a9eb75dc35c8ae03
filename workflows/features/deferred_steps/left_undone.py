"""LEFT UNDONE: best-effort steps that failed while their workflow became COMPLETE, by type, step and code.

No index finds them. So the statement reads a fixed number of the newest events by their primary key. The rollup counts
the failed runs of thirty days, also older ones than those events (docs/console.md#left-undone).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.utils import timezone

from workflows.effects import IN_DOUBT
from workflows.features.deferred_steps.operations import FAILED_KINDS, TOLD_KINDS
from workflows.features.trends import rates
from workflows.models import Event, StepOutcome
from workflows.models.failure import Cause
from workflows.models.rollup import Grain, Metric
from workflows.postgres.statements import fetch_all, fetch_row

# How many events are read, and how many failures are listed: as many as a bulk operation may have.
READ, MOST = 100_000, 10_000
SAMPLES = 5
LATELY = timedelta(days=30)

# The conditions are scalar subqueries, which PostgreSQL runs for each row by an index. Joins could become hash joins of
# whole tables.
STATEMENT = """SELECT w.workflow_type, e.step,
          coalesce(nullif(e.detail ->> 'error_code', ''), e.detail ->> 'error_class', ''), e.at, e.workflow_id
     FROM (SELECT * FROM workflows_event ORDER BY id DESC LIMIT %(read)s) e
    CROSS JOIN LATERAL (
          SELECT workflow_type, status, emptied_at FROM workflows_workflow
           WHERE id = e.workflow_id LIMIT 1) w
    WHERE e.kind = ANY (%(failed)s) AND w.status = 'COMPLETE' AND w.emptied_at IS NULL
      AND (SELECT later.id FROM workflows_event later
            WHERE later.workflow_id = e.workflow_id AND later.id > e.id AND later.step = e.step
              AND later.kind = ANY (%(told)s) LIMIT 1) IS NULL
      AND (SELECT f.id FROM workflows_followup f
            WHERE f.workflow_id = e.workflow_id AND f.step = e.step AND f.due_at IS NOT NULL LIMIT 1) IS NULL
      AND (SELECT c.id FROM workflows_effect c
            WHERE c.workflow_id = e.workflow_id AND c.step = e.step AND NOT c.undo
              AND c.state = ANY (%(in_doubt)s) LIMIT 1) IS NULL
    ORDER BY e.id DESC LIMIT %(most)s"""


@dataclass(slots=True)
class Group:
    """The workflows that failed at one step with one code: their ids, newest first, and the first and last time.

    `runs` counts all such failures in thirty days, whatever became of them. A group of older failures only has no ids.
    """

    cause: Cause
    ids: list[int] = field(default_factory=list)
    first: datetime | None = None
    last: datetime | None = None
    runs: int = 0


def groups(cause: Cause | None = None) -> list[Group]:
    """The groups, largest first, or only that of a cause. One query for the rows, and one for the runs.

    Leaves out steps that were done since or are still to be tried, calls in doubt, and deleted workflows.
    """
    found: dict[Cause, Group] = {}
    for workflow_type, step, code, at, workflow_id in _failed():
        of = Cause(workflow_type, step, code)
        group = found.setdefault(of, Group(of, last=at))
        group.ids.append(workflow_id)
        group.first = at
    for of, runs in _runs().items():
        found.setdefault(of, Group(of)).runs = runs
    wanted = [each for each in found.values() if cause in (None, each.cause)]
    return sorted(wanted, key=lambda each: (-len(each.ids), -each.runs, each.cause))


def reaches_back_to() -> datetime | None:
    """The time of the oldest event that is read; None if all are."""
    return fetch_row("SELECT (SELECT at FROM workflows_event ORDER BY id DESC OFFSET %s LIMIT 1)", [READ])[0]  # type: ignore[no-any-return]


def _failed() -> Sequence[tuple[str, str, str, datetime, int]]:
    """Type, step, code, time and workflow of each failure, newest first."""
    return fetch_all(
        STATEMENT,
        {
            "read": READ,
            "most": MOST,
            "failed": list(FAILED_KINDS),
            "told": [*TOLD_KINDS, Event.Kind.FOLLOW_UP_ASKED],
            "in_doubt": list(IN_DOUBT),
        },
    )


def _runs() -> dict[Cause, int]:
    now = timezone.now()
    labels, failed = ("workflow_type", "step", "code"), StepOutcome.BEST_EFFORT_FAILED
    found: dict[Cause, int] = {}
    for each in rates.series(Metric.STEP, now - LATELY, now, Grain.DAY, by=labels, outcome=failed):
        of = Cause(each.workflow_type, each.step, each.code)
        found[of] = found.get(of, 0) + each.count
    return found

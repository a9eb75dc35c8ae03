"""What the console's home page shows: counts, and what has waited longest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from workflows.definition import definitions
from workflows.models import Chore, ManualTask, State, Workflow
from workflows.models.manual_task import DUE
from workflows.postgres.statements import fetch_one

# Seconds. Clocks that are kept right by small steps are no news.
CLOCK_TOLERANCE = 5.0

# Nobody needs the difference between 10,000 and 20,000, and the database need not count them.
COUNT_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Count:
    """A count that stops at COUNT_LIMIT: `number` is one above it when there are more."""

    label: str
    state: str
    number: int

    def __str__(self) -> str:
        return f"{COUNT_LIMIT:,}+" if self.number > COUNT_LIMIT else f"{self.number:,}"


@dataclass(frozen=True, slots=True)
class Hidden:
    """Workflows that no worker takes yet, and nothing has put off: the database's clock was set back since they came.

    They read as queued. The last of those counted is due at `until`.
    """

    count: Count
    until: datetime


@dataclass(frozen=True, slots=True)
class Summary:
    at: datetime
    states: list[Count]
    tasks: Count
    oldest_due: Workflow | None
    next_task: ManualTask | None
    failing_chores: list[Chore]
    hidden: Hidden | None


def summary() -> Summary:
    tasks = ManualTask.objects.open()
    return Summary(
        at=timezone.now(),
        states=[_count_in_state(state) for state in State],
        tasks=Count("open tasks", "open", tasks[: COUNT_LIMIT + 1].count()),
        oldest_due=_oldest_due(),
        next_task=tasks.only("due_at", "expires_at").order_by(DUE, "id").first(),
        failing_chores=list(Chore.objects.exclude(failing_since=None).order_by("failing_since")),
        hidden=_hidden(),
    )


def _count_in_state(state: State) -> Count:
    rows = Workflow.objects.in_state(state).order_by().values("pk")
    return Count(state.label, state.value, rows[: COUNT_LIMIT + 1].count())


def _oldest_due() -> Workflow | None:
    """The workflow that has been due the longest and that no worker runs, of all queues of this release."""
    due = Workflow.objects.due()
    # Queue by queue: each is one read at the head of the index of due workflows.
    heads = [
        due.filter(queue=queue).only("queue", "invisible_until").order_by("invisible_until", "id").first()
        for queue in _queues()
    ]
    return min((head for head in heads if head), key=lambda head: head.invisible_until, default=None)


def _queues() -> list[str]:
    return sorted({definition.queue for definition in definitions().values()})


def _hidden() -> Hidden | None:
    """The workflows that were stored in what is the future now, and are due only then; None when there are none.

    They are among those that are due next, and no more of these are looked at than are counted.
    """
    number, last = 0, None
    for queue in _queues():
        found, until = fetch_one(
            """SELECT count(*), max(invisible_until)
                 FROM (SELECT created_at, invisible_until FROM workflows_workflow
                        WHERE status = 'PENDING' AND queue = %(queue)s
                          AND invisible_until > statement_timestamp() + %(tolerance)s * interval '1 second'
                        ORDER BY invisible_until, id LIMIT %(limit)s) next
                WHERE invisible_until <= created_at""",
            {"queue": queue, "tolerance": CLOCK_TOLERANCE, "limit": COUNT_LIMIT + 1},
        ) or (0, None)
        number += found
        last = max(filter(None, (last, until)), default=None)
    return Hidden(Count("hidden", "hidden", number), last) if last else None

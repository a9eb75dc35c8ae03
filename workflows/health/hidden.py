"""HIDDEN: workflows that no worker takes yet, because the database's clock was set back after they came."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from workflows.definition import definitions
from workflows.health import bounded
from workflows.postgres.often import fetch_row

# Seconds. Small corrections of a clock need no report.
CLOCK_TOLERANCE = 5.0


@dataclass(frozen=True, slots=True)
class FromTheFuture:
    """The number of workflows that are due later although nothing has rescheduled them, and the latest of these times.

    The database's clock was set back since they came. People see them as queued.
    """

    number: int
    until: datetime

    def __str__(self) -> str:
        return bounded.text(self.number)


def from_the_future() -> FromTheFuture | None:
    """The workflows with a time of creation in the future; None if there are none.

    None of them has started. Searches a bounded number of the workflows that are due next.
    """
    number, last = fetch_row(
        """SELECT count(*), max(invisible_until)
             FROM unnest(%(queues)s::text[]) AS of (queue) CROSS JOIN LATERAL (
                  SELECT created_at, invisible_until FROM workflows_workflow w
                   WHERE status = 'PENDING' AND NOT begun AND w.queue = of.queue
                     AND invisible_until > statement_timestamp() + %(tolerance)s * interval '1 second'
                   ORDER BY invisible_until, id LIMIT %(limit)s) next
            WHERE invisible_until <= created_at""",
        {
            "queues": sorted({definition.queue for definition in definitions().values()}),
            "tolerance": CLOCK_TOLERANCE,
            "limit": bounded.limit() + 1,
        },
    )
    return FromTheFuture(number, last) if last else None

"""LATE: what should have happened by now and has not. Each is one bounded read, however many rows there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from django.db.models import QuerySet

from workflows import extension
from workflows.engine import maintenance
from workflows.engine.claim import POOLS
from workflows.health import bounded
from workflows.models import Chore, Workflow
from workflows.models.workflow import AWAITS_RELEASE, PARKED_SQL
from workflows.postgres import often
from workflows.postgres.often import fetch_all, fetch_row
from workflows.postgres.skip_scan import skip_scan
from workflows.signals.waking import ADDRESSED, LISTENS
from workflows.state import parking

# Seconds. Workers look several times a second; anything later than this is not just chance.
LATE = 60.0
# Signals that nobody waits for yet stay open, so both the oldest and the newest are checked: so many of each.
SIGNALS = 250
# The number of workflows that are checked in each state.
OLDEST = 1_000
# The number of workflows that are checked for a signal's linking id.
LISTENERS = 20


class QueueBacklog(NamedTuple):
    """The due workflows of a queue that no worker has. `late`: started, and due for a minute."""

    queue: str
    due: int
    late: int


def _of(pool: str) -> str:
    return f"status = 'PENDING' AND {POOLS[pool]}"


BEGUN, FRESH = _of("begun"), _of("fresh")
# The queues of all unfinished workflows, by one step down two indexes for each queue.
QUEUES = f"""{skip_scan("of_begun", "workflows_workflow", BEGUN, "queue")},
               {skip_scan("of_fresh", "workflows_workflow", FRESH, "queue")},
               queues AS (SELECT queue FROM of_begun UNION SELECT queue FROM of_fresh)"""  # noqa: S608 (the names are ours)


class DueGroup(NamedTuple):
    """The due workflows of a queue, type and kind that no worker has. `since`: when the oldest became due."""

    queue: str
    workflow_type: str
    begun: bool
    compensating: bool
    due: int
    late: int
    since: datetime


_IS_FREE = "NOT EXISTS (SELECT FROM workflows_attempt a WHERE a.workflow_id = w.id AND a.closed_at IS NULL)"
_DUE = f"""SELECT workflow_type, begun, compensating, invisible_until,
                         begun AND invisible_until <= statement_timestamp() - make_interval(secs => %(late)s) AS is_late
                    FROM workflows_workflow w
                   WHERE queue = queues.queue AND invisible_until <= statement_timestamp() AND {_IS_FREE}"""  # noqa: S608 (ours)


def backlogs(groups: Sequence[DueGroup]) -> list[QueueBacklog]:
    """The due workflows, by queue."""
    due, late = Counter[str](), Counter[str]()
    for each in groups:
        due[each.queue] += each.due
        late[each.queue] += each.late
    return [QueueBacklog(queue, min(due[queue], bounded.limit() + 1), late[queue]) for queue in sorted(due)]


def due_groups() -> list[DueGroup]:
    """The due workflows. In each queue reading stops at a limit, separately for started ones and the others."""
    found = fetch_all(
        f"""WITH RECURSIVE {QUEUES}
            SELECT queue, workflow_type, begun, compensating,
                   count(*), count(*) FILTER (WHERE is_late), min(invisible_until)
              FROM queues CROSS JOIN LATERAL (
                  ({_DUE} AND {BEGUN} ORDER BY invisible_until, id LIMIT %(limit)s)
                   UNION ALL
                  ({_DUE} AND {FRESH} ORDER BY invisible_until, id LIMIT %(limit)s)) due
             GROUP BY queue, workflow_type, begun, compensating""",  # noqa: S608 (the names are ours)
        {"late": LATE, "limit": bounded.limit() + 1},
    )
    return [DueGroup(*each) for each in found]


def late_expiries() -> int:
    """The number of workflows that expired (`expires_after`) a minute ago and that nothing has woken."""
    (number,) = fetch_row(
        """SELECT count(*) FROM (
               SELECT FROM workflows_workflow
                WHERE status = 'PENDING' AND NOT compensating AND expires_at IS NOT NULL
                  AND expires_at <= statement_timestamp() - make_interval(secs => %(late)s)
                  AND invisible_until > statement_timestamp() ORDER BY expires_at LIMIT %(limit)s) over""",
        {"late": LATE, "limit": bounded.limit() + 1},
    )
    return int(number)


_LISTENING = f"""
    (SELECT FROM workflows_workflow w WHERE {ADDRESSED} AND w.status = 'PENDING'
      UNION ALL
     SELECT FROM (SELECT * FROM workflows_workflow l
                   WHERE l.linking_id = s.linking_id AND l.status = 'PENDING' AND l.wake_on <> '{{}}'
                   ORDER BY l.invisible_until DESC LIMIT {LISTENERS}) w
      WHERE {LISTENS}
        AND NOT EXISTS (SELECT FROM workflows_wait a WHERE a.workflow_id = w.id AND a.signal_id = s.id))"""  # noqa: S608 (ours)


def signal_lag() -> float:
    """The age in seconds of the oldest signal that a workflow waits for and has not got; 0 if there is none.

    Checks a bounded number of the oldest and the newest open signals, and of the workflows that share a linking id.
    """
    (seconds,) = fetch_row(
        f"""SELECT extract(epoch FROM clock_timestamp() - min(created_at))::float8 FROM (
               (SELECT * FROM workflows_signal WHERE closed_at IS NULL ORDER BY id LIMIT {SIGNALS})
                UNION ALL
               (SELECT * FROM workflows_signal WHERE closed_at IS NULL ORDER BY id DESC LIMIT {SIGNALS})) s
             WHERE EXISTS {_LISTENING}"""  # noqa: S608 (ours)
    )
    return max(0.0, seconds or 0.0)


# Minutes after which a due deferred step is late. Each try reschedules it, so no worker has even tried a late one.
DEFERRED = 30
_LATE_DEFERRED = f"""
    WITH RECURSIVE {skip_scan("queues", "workflows_followup", "due_at IS NOT NULL", "queue")}
    SELECT DISTINCT workflow_id FROM queues CROSS JOIN LATERAL (
           SELECT workflow_id FROM workflows_followup f
            WHERE f.queue = queues.queue AND due_at <= statement_timestamp() - make_interval(mins => {DEFERRED})
            ORDER BY due_at, id LIMIT %(limit)s) late"""  # noqa: S608 (ours)


def with_late_deferred_steps() -> list[int]:
    """The workflows with a late deferred step: no worker has its queue, or knows its type."""
    return [pk for (pk,) in fetch_all(_LATE_DEFERRED, {"limit": bounded.limit() + 1})]


def of_unknown_type() -> Counter[tuple[str, bool]]:
    """The workflows that wait for a release that knows their type, by type, and whether they are to be reversed.

    They have not finished, and some may need a refund. Without such a release they wait for ever.
    """
    found = often.fetch_all(*_awaiting_release(bounded.limit() + 1))
    return Counter({(name, is_reversed): number for name, is_reversed, number in found})


@cache
def _awaiting_release(most: int) -> tuple[str, tuple[Any, ...]]:
    rows = Workflow.objects.filter(AWAITS_RELEASE).values_list("workflow_type", "compensating")[:most]
    sql, parameters = rows.query.sql_with_params()
    return f"SELECT *, count(*) FROM ({sql}) waiting GROUP BY 1, 2", parameters  # noqa: S608 (the ORM's)


# The oldest in each state, by that state's index; of parked workflows, the oldest of each service.
OLDEST_OF_EACH = f"""
    (SELECT id, workflow_type, created_at FROM workflows_workflow
      WHERE status = 'PENDING' AND parked_on = '' AND waiting_for = '' AND retry_count = 0 ORDER BY id LIMIT %(oldest)s)
     UNION ALL
    (SELECT id, workflow_type, created_at FROM workflows_workflow
      WHERE status = 'PENDING' AND parked_on = '' AND waiting_for = '' AND retry_count > 0 ORDER BY id LIMIT %(oldest)s)
     UNION ALL
    (SELECT id, workflow_type, created_at FROM workflows_workflow
      WHERE status = 'PENDING' AND parked_on = '' AND waiting_for <> '' ORDER BY id LIMIT %(oldest)s)
     UNION ALL
    SELECT parked.* FROM {parking.NAMES} names CROSS JOIN LATERAL (
        SELECT id, workflow_type, created_at FROM workflows_workflow
         WHERE {PARKED_SQL} AND parked_on = names.service ORDER BY id LIMIT %(oldest)s) parked"""  # noqa: S608 (ours)


def chores() -> QuerySet[Chore]:
    """The maintenance tasks of this release: no worker does the others any more."""
    return Chore.objects.filter(name__in=maintenance.tasks_of(extension.of_workers()))


def all_chores() -> list[Chore]:
    """As `chores`, by name, for figures."""
    names = maintenance.tasks_of(extension.of_workers())
    return sorted((each for each in often.instances(Chore.objects.all) if each.name in names), key=attrgetter("name"))


def silent(of: Sequence[Chore], at: datetime) -> dict[str, float]:
    """For how many seconds each maintenance task has been due and not done; 0 if it is in time."""
    return {each.name: max(0.0, (at - each.due_at).total_seconds()) for each in of}

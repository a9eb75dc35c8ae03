"""What Home's verdict rests on. Each is a bounded read, and there are as many of them however many rows there are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, models
from django.db.models import Q, QuerySet
from django.utils import timezone

from workflows.engine import lease
from workflows.engine.claim import COMPENSATION, POOLS
from workflows.health.overview import COUNT_LIMIT, Standing, Summary, counted
from workflows.health.verdict import Down, Health, Link, Number, Waiting
from workflows.models import ManualTask, WorkerProcess, Workflow
from workflows.outages.circuits import CircuitState
from workflows.postgres.skip_scan import skip_scan

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
_DOWN = (CircuitState.OPEN, CircuitState.TRIED, CircuitState.HELD)


@dataclass(frozen=True, slots=True)
class Failures:
    number: int
    earliest: datetime | None  # of those counted


def health(summary: Summary, standings: list[Standing]) -> Health:
    """What the summary of the home page and the services tell, and what else the verdict needs."""
    at = timezone.now()
    last, before = _failures(at - HOUR, at), _failures(at - DAY, at - HOUR)
    workers = live_workers(at)
    taken, deserted = _waiting(workers)
    return Health(
        at=at,
        workers=_number(sum(number for _, _, number in workers), Link("workerprocess", filters=(("state", "live"),))),
        failed=_number(last.number, _failed_between(at - HOUR, at)),
        failed_today=_number(last.number + before.number, _failed_between(at - DAY, at)),
        usual_failures=usual_failures(before, since=at - DAY, until=at - HOUR),
        overdue=_number(
            ManualTask.objects.overdue()[: COUNT_LIMIT + 1].count(), Link("manualtask", filters=(("state", "overdue"),))
        ),
        oldest=taken,
        deserted=deserted,
        services=[_down(each) for each in standings if each.state in _DOWN or each.parked.number],
        failing_maintenance=[
            (chore.name, chore.failing_since) for chore in summary.failing_maintenance if chore.failing_since
        ],
        hidden_until=summary.hidden.until if summary.hidden else None,
    )


def _number(number: int, link: Link) -> Number:
    return Number(number, counted(number), link)


def _down(each: Standing) -> Down:
    return Down(
        each.pk,
        each.since,
        _number(each.parked.number, Link("workflow", filters=(("parked_on", each.pk),))),
        is_held=each.state == CircuitState.HELD,
        is_back=each.state not in _DOWN,
    )


# --- Failures -----------------------------------------------------------------------------------


def failed_between(rows: QuerySet[Workflow], since: datetime, until: datetime) -> QuerySet[Workflow]:
    """Those that failed then, and stand failed: neither cancelled, nor retried since."""
    return rows.filter(status="FAILED", cancelled_at=None, completed_at__gte=since, completed_at__lt=until)


def interval(text: str) -> tuple[datetime, datetime] | None:
    """Two times as a link has them: `2026-11-23T00:10:00.0Z/2026-11-23T01:10:00.0Z`; None if it is none."""
    try:
        since, until = (datetime.strptime(part, _STAMP).replace(tzinfo=UTC) for part in text.split("/"))
    except ValueError:
        return None
    return since, until


_STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"


def _failed_between(since: datetime, until: datetime) -> Link:
    return Link("workflow", filters=(("failed", f"{since:{_STAMP}}/{until:{_STAMP}}"),))


def _failures(since: datetime, until: datetime) -> Failures:
    """The latest of them, as many as are counted."""
    latest = failed_between(Workflow.objects.all(), since, until).order_by("-completed_at")[: COUNT_LIMIT + 1]
    told = latest.aggregate(number=models.Count("completed_at"), earliest=models.Min("completed_at"))
    return Failures(told["number"], told["earliest"])


def usual_failures(before: Failures, *, since: datetime, until: datetime) -> float:
    """Failures an hour; of more than are counted by the time that those took."""
    if before.number > COUNT_LIMIT and before.earliest:
        since = before.earliest
    return before.number / max((until - since) / HOUR, 1 / 3600)


# --- Workers, and what waits for them -----------------------------------------------------------


def is_live(at: datetime) -> Q:
    """Of a worker's row: whether it was heard of within the time that its longest step may take."""
    return Q(stopped_at=None, last_seen__gte=at - timedelta(seconds=lease.lease_seconds()))


def live_workers(at: datetime) -> list[tuple[str, str, int]]:
    """Of each queue, and what its workers take of it: how many are live. There is one row for each process."""
    counted: dict[tuple[str, str], int] = {}
    for queue, only in WorkerProcess.objects.filter(is_live(at)).values_list("queue", "only")[:COUNT_LIMIT]:
        counted[queue, only] = counted.get((queue, only), 0) + 1
    return [(queue, only, number) for (queue, only), number in sorted(counted.items())]


def _waiting(workers: list[tuple[str, str, int]]) -> tuple[Waiting | None, list[Waiting]]:
    """What has been due the longest of all that a live worker takes, and in each queue of what none takes."""
    everything = {queue for queue, only, _ in workers if not only}
    undoing = everything | {queue for queue, only, _ in workers if only == COMPENSATION}
    taken: list[Waiting] = []
    deserted: dict[str, Waiting] = {}
    for queue, is_undoing, workflow, since in _heads():
        head = Waiting(workflow, since, queue)
        if queue in (undoing if is_undoing else everything):
            taken.append(head)
        elif queue not in deserted or since < deserted[queue].since:
            deserted[queue] = head
    return min(taken, key=lambda head: head.since, default=None), sorted(deserted.values(), key=lambda head: head.since)


_BEGUN, _FRESH = (f"status = 'PENDING' AND {POOLS[pool]}" for pool in ("begun", "fresh"))
_QUEUES = f"""{skip_scan("of_begun", "workflows_workflow", _BEGUN, "queue")},
               {skip_scan("of_fresh", "workflows_workflow", _FRESH, "queue")},
               queues AS (SELECT queue FROM of_begun UNION SELECT queue FROM of_fresh)"""  # noqa: S608 (the names are ours)


def _heads() -> list[tuple[Any, ...]]:
    """Of each queue that has rows: the one that has been due the longest, of what is undone and of the others.

    By as many steps down the index as there are queues. Those that workers run are passed over; there are as many of
    these as workers. And of the others no more are read than are counted elsewhere: of a queue in
    which so many are due to be undone, the oldest of the others may be missed.
    """
    due = """SELECT id, invisible_until, compensating FROM workflows_workflow
                          WHERE queue = queues.queue AND invisible_until <= statement_timestamp()"""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""WITH RECURSIVE {_QUEUES}
               SELECT queue, undoing, head.id, head.invisible_until
                 FROM queues CROSS JOIN LATERAL (
                    (SELECT true AS undoing, id, invisible_until FROM workflows_workflow w
                      WHERE status = 'PENDING' AND compensating AND queue = queues.queue
                        AND invisible_until <= statement_timestamp()
                        AND NOT EXISTS (SELECT FROM workflows_attempt a
                                         WHERE a.workflow_id = w.id AND a.closed_at IS NULL)
                      ORDER BY invisible_until, id LIMIT 1)
                    UNION ALL
                    (SELECT false, id, invisible_until FROM (
                        ({due} AND {_BEGUN} ORDER BY invisible_until, id LIMIT %(limit)s)
                         UNION ALL
                        ({due} AND {_FRESH} ORDER BY invisible_until, id LIMIT %(limit)s)) w
                      WHERE NOT compensating
                        AND NOT EXISTS (SELECT FROM workflows_attempt a
                                         WHERE a.workflow_id = w.id AND a.closed_at IS NULL)
                      ORDER BY invisible_until, id LIMIT 1)) head""",  # noqa: S608 (the names are ours)
            {"limit": COUNT_LIMIT},
        )
        heads: list[tuple[Any, ...]] = cursor.fetchall()
        return heads

"""WORKERS: which are live, and which workflows have waited for one the longest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Q

from workflows.engine import lease
from workflows.engine.claim import COMPENSATION
from workflows.health import bounded, late
from workflows.health.late import BEGUN, FRESH, QUEUES
from workflows.postgres.often import fetch_all


@dataclass(frozen=True, slots=True)
class LongestDue:
    """The workflow of a queue that has been due the longest."""

    workflow: int
    since: datetime
    queue: str
    workflow_type: str = ""


def is_live(at: datetime) -> Q:
    """A condition for a worker's row: it was heard of within the time that its longest step may take."""
    return Q(stopped_at=None, last_seen__gte=at - timedelta(seconds=lease.lease_seconds()))


class LiveWorkers(NamedTuple):
    """How many there are: by queue and by what they take of it, and by release. Each process has a row."""

    by_queue: list[tuple[str, str, int]]
    by_release: dict[str, int]


def live_workers() -> LiveWorkers:
    """The live workers, in one statement."""
    found = fetch_all(
        """SELECT queue, "only", release, count(*) FROM workflows_workerprocess
            WHERE stopped_at IS NULL AND last_seen >= statement_timestamp() - make_interval(secs => %(lease)s)
            GROUP BY 1, 2, 3 ORDER BY 1, 2, 3""",
        {"lease": lease.lease_seconds()},
    )
    by_queue, by_release = Counter[tuple[str, str]](), Counter[str]()
    for queue, only, release, number in found:
        by_queue[queue, only] += number
        by_release[release] += number
    return LiveWorkers([(*of, number) for of, number in by_queue.items()], dict(sorted(by_release.items())))


def longest_due(
    workers: list[tuple[str, str, int]], held: Collection[str]
) -> tuple[LongestDue | None, list[LongestDue]]:
    """The workflow that has been due the longest: among all that live workers take, and in each other queue."""
    everything, undoing = _taken(workers)
    taken: list[LongestDue] = []
    deserted: dict[str, LongestDue] = {}
    for queue, is_undoing, workflow, since in _left_in_hand():
        if queue not in (undoing if is_undoing else everything):
            deserted.setdefault(queue, LongestDue(workflow, since, queue))
    for queue, is_undoing, workflow, since, workflow_type in _heads(held):
        head = LongestDue(workflow, since, queue, workflow_type)
        if queue in (undoing if is_undoing else everything):
            taken.append(head)
        elif queue not in deserted or since < deserted[queue].since:
            deserted[queue] = head
    return min(taken, key=lambda head: head.since, default=None), sorted(deserted.values(), key=lambda head: head.since)


def oldest_by_type(
    oldest: LongestDue | None, workers: list[tuple[str, str, int]], held: Collection[str], due: Sequence[late.DueGroup]
) -> dict[str, datetime]:
    """By type, since when the oldest workflow is due that a live worker takes and nobody has; `oldest` is that of all.

    Looks only at `due`: behind a backlog of its queue, the oldest of another type may be missed.
    """
    everything, undoing = _taken(workers)
    found = {oldest.workflow_type: oldest.since} if oldest else {}
    for each in due:
        is_held = not each.begun and not {f"queue:{each.queue}", f"type:{each.workflow_type}"}.isdisjoint(held)
        if each.queue in (undoing if each.compensating else everything) and not is_held:
            found[each.workflow_type] = min(each.since, found.get(each.workflow_type, each.since))
    return found


def _taken(workers: list[tuple[str, str, int]]) -> tuple[set[str], set[str]]:
    """The queues in which live workers take everything, and those in which they take at least compensations."""
    everything = {queue for queue, only, _ in workers if not only}
    return everything, everything | {queue for queue, only, _ in workers if only == COMPENSATION}


def _left_in_hand() -> list[tuple[Any, ...]]:
    """The workflows of workers that died with their host, oldest first. Their attempts are still open."""
    return fetch_all(
        """SELECT w.queue, w.compensating, a.workflow_id, a.opened_at FROM workflows_attempt a
             CROSS JOIN LATERAL (SELECT queue, compensating FROM workflows_workflow w
                                  WHERE w.id = a.workflow_id AND w.status = 'PENDING' LIMIT 1) w
            WHERE a.closed_at IS NULL AND a.opened_at < statement_timestamp() - make_interval(secs => %(lease)s)
              AND NOT EXISTS (SELECT FROM workflows_workerprocess p
                               WHERE p.name = a.worker AND p.stopped_at IS NULL
                                 AND p.last_seen >= statement_timestamp() - make_interval(secs => %(lease)s))
            ORDER BY a.opened_at LIMIT %(limit)s""",
        {"lease": lease.lease_seconds(), "limit": bounded.limit()},
    )


def _heads(held: Collection[str]) -> list[tuple[Any, ...]]:
    """The workflow of each queue that has been due the longest: among compensations, and among the others.

    Takes one step down the index for each queue. Skips running workflows, of which there are no more than workers.
    Reads at most the limit of counts of the rest, so behind that many compensations, or workflows of a held type, the
    oldest may be missed. A workflow that has not started in something `held` waits for no worker.
    """
    due = """SELECT id, invisible_until, compensating, begun, workflow_type FROM workflows_workflow
                          WHERE queue = queues.queue AND invisible_until <= statement_timestamp()"""
    return fetch_all(
        f"""WITH RECURSIVE {QUEUES}
               SELECT queue, undoing, head.id, head.invisible_until, head.workflow_type
                 FROM queues CROSS JOIN LATERAL (
                    (SELECT true AS undoing, id, invisible_until, workflow_type FROM workflows_workflow w
                      WHERE status = 'PENDING' AND compensating AND queue = queues.queue
                        AND invisible_until <= statement_timestamp()
                        AND NOT EXISTS (SELECT FROM workflows_attempt a
                                         WHERE a.workflow_id = w.id AND a.closed_at IS NULL)
                      ORDER BY invisible_until, id LIMIT 1)
                    UNION ALL
                    (SELECT false, id, invisible_until, workflow_type FROM (
                        ({due} AND {BEGUN} ORDER BY invisible_until, id LIMIT %(limit)s)
                         UNION ALL
                        ({due} AND {FRESH} AND 'queue:' || queue <> ALL (%(held)s)
                         ORDER BY invisible_until, id LIMIT %(limit)s)) w
                      WHERE NOT compensating AND (begun OR 'type:' || workflow_type <> ALL (%(held)s))
                        AND NOT EXISTS (SELECT FROM workflows_attempt a
                                         WHERE a.workflow_id = w.id AND a.closed_at IS NULL)
                      ORDER BY invisible_until, id LIMIT 1)) head""",  # noqa: S608 (the names are ours)
        {"limit": bounded.limit(), "held": sorted(held)},
    )

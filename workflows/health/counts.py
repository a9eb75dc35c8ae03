"""COUNTS: what Home, its sentence and the metrics say of the whole. Each is one bounded read, however many rows there
are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from functools import cache
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection, models
from django.db.models import Case, Q, QuerySet, When
from django.utils import timezone

from workflows.definition import definitions
from workflows.engine import lease
from workflows.engine.claim import COMPENSATION
from workflows.errors import DUPLICATES
from workflows.features.outages.health import Standing, standings
from workflows.features.outbox import health as outbox
from workflows.features.pace import health as paces
from workflows.features.pace.health import PaceStanding
from workflows.features.queues import undelivered
from workflows.features.trends import rates
from workflows.health import bounded, late, money_at_risk, undecided
from workflows.health.bounded import Count, Link
from workflows.health.late import BEGUN, FRESH, QUEUES
from workflows.health.side_processes import Unattended, unattended
from workflows.models import Chore, ManualTask, State, Wait, WorkerProcess, Workflow
from workflows.models.rollup import Grain, Metric
from workflows.models.undelivered_message import LEFT_WITH_BROKER
from workflows.models.workflow import UNACKNOWLEDGED
from workflows.postgres.statements import fetch_all, fetch_row
from workflows.wording import ENGINE_CODES, Wording, is_explained, words_for_code

# Seconds. Clocks that are corrected in small steps need no report.
CLOCK_TOLERANCE = 5.0
# One of fewer says nothing of one in twenty.
LATELY, ENOUGH = timedelta(minutes=15), 20
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
# Presets of the list of workflows: what holds money, and what no worker takes.
HOLDING, UNKNOWN_TYPE, LATE_DEFERRED, UNCLEAR = "holding", "unknown-type", "late-deferred", "unclear"
OVERDUE_WAIT = "overdue-wait"
# Of the failures that nobody has acknowledged for a day, so many are looked at, the newest: each when its day is over.
FORGOTTEN = 10_000


@dataclass(frozen=True, slots=True)
class LongestDue:
    """The workflow of a queue that has been due the longest."""

    workflow: int
    since: datetime
    queue: str
    workflow_type: str = ""


@dataclass(frozen=True, slots=True)
class FromTheFuture:
    """How many workflows are due only later though nothing has rescheduled them, and when the last of them is due.

    The database's clock was set back since they came. People see them as queued.
    """

    number: int
    until: datetime

    def __str__(self) -> str:
        return bounded.text(self.number)


@dataclass(frozen=True, slots=True)
class Slow:
    """A type whose slowest 5% have lately taken more than its `slo` promises, its waits left out. Seconds."""

    workflow_type: str
    p95: float
    promised: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What was read at one moment."""

    at: datetime
    workers: Count
    workers_by_queue: list[tuple[str, str, int]] = field(default_factory=list)
    unattended: list[Unattended] = field(default_factory=list)  # what no consumer or relay takes
    failed: Count  # in the last hour
    failed_today: Count  # in the last 24 hours, as the charts have them: that hour is among them
    unexpected: Count  # of those in the last hour: their code has no words that make them the patient's own
    usual_failures: float  # unexpected ones an hour, of those before
    tasks: Count
    overdue: Count
    overdue_waits: Count
    states: dict[State, Count] = field(default_factory=dict)
    types: dict[State, Counter[str]] = field(default_factory=dict)  # of each state, where they are asked for
    oldest: LongestDue | None = None  # of what a live worker takes, and nobody holds
    deserted: list[LongestDue] = field(default_factory=list)  # of each queue, of what no live worker takes
    services: list[Standing] = field(default_factory=list)
    causes: list[Standing] = field(default_factory=list)
    failing_maintenance: list[Chore] = field(default_factory=list)
    maintenance_set_aside: list[Chore] = field(default_factory=list)  # its workers died
    hidden: FromTheFuture | None = None
    destinations: list[outbox.Standing] = field(default_factory=list)  # of the outbox
    paces: list[PaceStanding] = field(default_factory=list)  # of what is held or paced
    slow: list[Slow] = field(default_factory=list)
    stuck: dict[str, int] = field(default_factory=dict)  # by type, what has not ended in its longest time
    urgent: dict[str, Count] = field(default_factory=dict)  # overdue tasks where money is in doubt, or may be, by type
    undecided: list[tuple[Count, str]] = field(default_factory=list)  # what waits for a person, and is no task
    unclear: Count  # workflows under way that may have charged, for an hour, and nobody is asked
    holding: Count  # failed workflows that hold money, and that nobody has acknowledged
    undelivered: Count
    refused: Count  # submissions, at the doors of queues
    left_with_broker: Count  # those that are kept nowhere but in its dead letters
    of_unknown_type: Count  # they wait for a release that knows their type
    to_be_reversed: Count  # of these
    late_deferred: Count  # workflows with a deferred step that no worker takes

    @property
    def longest_due(self) -> LongestDue | None:
        """Whether a live worker takes it or not, the workflow that is due the longest."""
        return min(filter(None, (self.oldest, *self.deserted)), key=lambda waiting: waiting.since, default=None)


def read(states: Collection[State] = State, *, by_type: bool = False) -> Counts:
    """What there is now. Only these states are counted; `by_type` also by the type of their workflows."""
    at = timezone.now()
    last, day = _failures(at - HOUR, at), rates.window(at, 24, HOUR)[0]
    before = _failures(day, at - HOUR)
    workers = live_workers(at)
    limited = paces.active()
    oldest, deserted = _longest_due(workers, [each.pk for each in limited if each.is_held])
    found, unknown, in_states = standings(), late.of_unknown_type(), _in_states(states, by_type=by_type)
    messages, told_others = undelivered.numbers(), outbox.standings()
    return Counts(
        at=at,
        workers=_count(sum(number for _, _, number in workers), "workerprocess", state="live"),
        workers_by_queue=workers,
        failed=_count(last.number, "workflow", failed=interval_text(at - HOUR, at)),
        failed_today=_count(last.number + before.number, "workflow", failed=interval_text(day, at)),
        unexpected=_count(last.unexpected, "workflow", failed=interval_text(at - HOUR, at), unexpected="yes"),
        usual_failures=usual_failures(before, since=day, until=at - HOUR),
        tasks=_count(bounded.count(ManualTask.objects.open()), "manualtask", state="open"),
        overdue=_count(bounded.count(ManualTask.objects.overdue()), "manualtask", state="overdue"),
        overdue_waits=_count(bounded.count(Wait.objects.overdue()), "workflow", preset=OVERDUE_WAIT),
        states={state: _count(types.total(), "workflow", state=state.value) for state, types in in_states.items()},
        types=in_states if by_type else {},
        oldest=oldest,
        deserted=deserted,
        services=[each for each in found if not each.is_cause],
        causes=[each for each in found if each.is_cause],
        failing_maintenance=list(late.chores().exclude(failing_since=None).order_by("failing_since")),
        maintenance_set_aside=list(late.chores().exclude(set_aside_at=None).order_by("set_aside_at")),
        hidden=_from_the_future(),
        destinations=told_others,
        unattended=unattended(at, told_others),
        paces=limited,
        slow=_slow(at),
        urgent={
            task_type: _count(number, "manualtask", state="overdue", task_type=task_type)
            for task_type, number in money_at_risk.overdue().items()
        },
        undecided=undecided.read(),
        unclear=_count(len(money_at_risk.long_unclear_charges()), "workflow", preset=UNCLEAR),
        holding=_count(len(money_at_risk.standing_charges()), "workflow", preset=HOLDING),
        of_unknown_type=_count(unknown.total(), "workflow", preset=UNKNOWN_TYPE),
        to_be_reversed=_count(
            sum(number for (_, is_reversed), number in unknown.items() if is_reversed),
            "workflow",
            preset=UNKNOWN_TYPE,
            state=State.COMPENSATING.value,
        ),
        late_deferred=_count(len(late.with_late_deferred_steps()), "workflow", preset=LATE_DEFERRED),
        undelivered=_count(messages.messages, "undeliveredmessage", state="open"),
        refused=_count(messages.refused, "undeliveredmessage", state="open"),
        left_with_broker=_count(messages.left_with_broker, "undeliveredmessage", state="open", code=LEFT_WITH_BROKER),
        stuck=late.stuck({name: each.slo.longest for name, each in definitions().items() if each.slo}),
    )


def _slow(at: datetime) -> list[Slow]:
    minutes = rates.series(Metric.ACTIVE, at - LATELY, at, Grain.MINUTE, by=["workflow_type"])
    found = []
    for name, definition in sorted(definitions().items()):
        buckets = rates.add(*(point.buckets for point in minutes if point.workflow_type == name))
        p95 = rates.quantile(Metric.ACTIVE, buckets, 0.95) if sum(buckets) >= ENOUGH else None
        if definition.slo and p95 and p95 > (promised := definition.slo.p95.total_seconds()):
            found.append(Slow(name, p95, promised))
    return found


def _count(number: int, model: str, **filters: str) -> Count:
    return Count(number, Link(model, filters=tuple(filters.items())))


def _in_states(states: Collection[State], *, by_type: bool) -> dict[State, Counter[str]]:
    """How many rows are in each of these states: by type, or all under an empty name. Counting stops at a limit."""
    limit = bounded.limit()
    parts = list(_compiled(frozenset(states) - {State.QUEUED}, limit))
    if State.QUEUED in states:
        parts.append((State.QUEUED, *_queued(limit)))
    column = "workflow_type" if by_type else "''"
    counting = " UNION ALL ".join(
        f"SELECT '{state}', {column}, count(*) FROM ({sql}) of_state GROUP BY 2"  # noqa: S608 (the ORM's)
        for state, sql, _ in parts
    )
    found: dict[State, Counter[str]] = {state: Counter() for state in State if state in states}
    with connection.cursor() as cursor:
        cursor.execute(counting, [each for _, _, given in parts for each in given])
        for state, workflow_type, number in cursor.fetchall():
            found[State(state)][workflow_type] = number
    return found


@cache
def _compiled(states: frozenset[State], limit: int) -> list[tuple[State, str, tuple[Any, ...]]]:
    """For each state the SQL of its first rows. To compile it takes Django longer than to run it."""
    return [(state, *_sql(Workflow.objects.in_state(state), limit)) for state in sorted(states)]


def _queued(limit: int) -> tuple[str, tuple[Any, ...]]:
    """The same for what is queued, which is in two sets."""
    compiled = []
    for rows in Workflow.objects.queued(limit):
        with suppress(EmptyResultSet):
            compiled.append(_sql(rows, limit))
    together = " UNION ALL ".join(f"(SELECT * FROM ({sql}) one)" for sql, _ in compiled)  # noqa: S608 (the ORM's)
    return f"{together} LIMIT {limit + 1}", tuple(each for _, given in compiled for each in given)


def _sql(rows: QuerySet[Workflow], limit: int) -> tuple[str, tuple[Any, ...]]:
    return rows.order_by().values("workflow_type")[: limit + 1].query.sql_with_params()


def _from_the_future() -> FromTheFuture | None:
    """The workflows that were stored at a time that is now in the future; None when there are none.

    None of them has started. They are searched for among those due next, of which no more than are counted are read.
    """
    number, last = 0, None
    for queue in sorted({definition.queue for definition in definitions().values()}):
        found, until = fetch_row(
            """SELECT count(*), max(invisible_until)
                 FROM (SELECT created_at, invisible_until FROM workflows_workflow
                        WHERE status = 'PENDING' AND NOT begun AND queue = %(queue)s
                          AND invisible_until > statement_timestamp() + %(tolerance)s * interval '1 second'
                        ORDER BY invisible_until, id LIMIT %(limit)s) next
                WHERE invisible_until <= created_at""",
            {"queue": queue, "tolerance": CLOCK_TOLERANCE, "limit": bounded.limit() + 1},
        )
        number += found
        last = max(filter(None, (last, until)), default=None)
    return FromTheFuture(number, last) if last else None


# --- Failures -----------------------------------------------------------------------------------


def failed_between(rows: QuerySet[Workflow], since: datetime, until: datetime) -> QuerySet[Workflow]:
    """The workflows that failed in that time, and were neither duplicates nor cancelled or retried since."""
    failed = rows.filter(status="FAILED", cancelled_at=None, completed_at__gte=since, completed_at__lt=until)
    return failed.exclude(last_error_code__in=DUPLICATES)


def interval(text: str) -> tuple[datetime, datetime] | None:
    """Two times as a link has them: `2026-11-23T00:10:00.0Z/2026-11-23T01:10:00.0Z`; None if it is none.

    Nor is one that some reader's clock cannot show: of the first year that Python knows, or the last.
    """
    try:
        since, until = (datetime.strptime(part, _STAMP).replace(tzinfo=UTC) for part in text.split("/"))
    except ValueError:
        return None
    return (since, until) if all(MINYEAR < each.year < MAXYEAR for each in (since, until)) else None


_STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"


def interval_text(since: datetime, until: datetime) -> str:
    """The same as text."""
    return f"{since:{_STAMP}}/{until:{_STAMP}}"


@dataclass(frozen=True, slots=True)
class FailedWorkflows:
    """How many failed, how many of them for a reason that is not explained as the patient's own, and the earliest."""

    number: int
    unexpected: int
    earliest: datetime | None  # of those counted


def _failures(since: datetime, until: datetime) -> FailedWorkflows:
    """The latest failures, as many as are counted."""
    latest = failed_between(Workflow.objects.all(), since, until).order_by("-completed_at")[: bounded.limit() + 1]
    told = latest.annotate(counts=Case(When(is_unexpected(), then=1))).aggregate(
        number=models.Count("completed_at"), unexpected=models.Count("counts"), earliest=models.Min("completed_at")
    )
    return FailedWorkflows(**told)


def is_unexpected() -> Q:
    """A condition for a failed workflow: no words for its code make it the patient's own. It may be our mistake."""
    return ~_with_code(is_explained)


def forgotten_failures(at: datetime) -> int:
    """The failures that nobody has acknowledged for a day, except those of a code that asks for nobody."""
    old = Workflow.objects.filter(UNACKNOWLEDGED, completed_at__lt=at - DAY).order_by("-completed_at")[:FORGOTTEN]
    asks_somebody = ~_with_code(lambda wording, code: words_for_code(wording, code).asks_nobody)
    told = old.annotate(counts=Case(When(asks_somebody, then=1)))
    return int(told.aggregate(number=models.Count("counts"))["number"])


def _with_code(holds: Callable[[Wording, str], bool]) -> Q:
    """A condition for a failed workflow: that holds of its code, by the words of its type, if that is known here."""

    def codes(wording: Wording) -> list[str]:
        return [code for code in {*wording.codes, *ENGINE_CODES} if holds(wording, code)]

    found = ~Q(workflow_type__in=definitions()) & Q(last_error_code__in=codes(Wording()))
    for definition in definitions().values():
        found |= Q(workflow_type=definition.name, last_error_code__in=codes(definition.wording))
    return found


def usual_failures(before: FailedWorkflows, *, since: datetime, until: datetime) -> float:
    """Unexpected failures an hour. If there are more than are counted, the rate comes from the time that those took."""
    if before.number > bounded.limit() and before.earliest:
        since = before.earliest
    return before.unexpected / max((until - since) / HOUR, 1 / 3600)


# --- Workers, and what waits for them -----------------------------------------------------------


def is_live(at: datetime) -> Q:
    """A condition for a worker's row: it was heard of within the time that its longest step may take."""
    return Q(stopped_at=None, last_seen__gte=at - timedelta(seconds=lease.lease_seconds()))


def live_workers(at: datetime) -> list[tuple[str, str, int]]:
    """How many workers are live, by queue and by what they take of it. There is one row for each process."""
    counted: dict[tuple[str, str], int] = {}
    for queue, only in WorkerProcess.objects.filter(is_live(at)).values_list("queue", "only")[: bounded.COUNT_LIMIT]:
        counted[queue, only] = counted.get((queue, only), 0) + 1
    return [(queue, only, number) for (queue, only), number in sorted(counted.items())]


def releases_of_workers(at: datetime) -> dict[str, int]:
    """How many workers are live, by release."""
    found = WorkerProcess.objects.filter(is_live(at)).values_list("release", flat=True)[: bounded.COUNT_LIMIT]
    return dict(sorted(Counter(found).items()))


def _longest_due(workers: list[tuple[str, str, int]], held: list[str]) -> tuple[LongestDue | None, list[LongestDue]]:
    """What has been due the longest: of all that a live worker takes, and in each queue of what none takes."""
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


def oldest_by_type(counts: Counts, due: Sequence[late.DueGroup]) -> dict[str, datetime]:
    """By type, since when the oldest is due that a live worker takes and nobody holds, as in `Counts.oldest`.

    Only what is in `due` is looked at: behind a backlog of its queue the oldest of another type may be missed.
    """
    everything, undoing = _taken(counts.workers_by_queue)
    held = {each.pk for each in counts.paces if each.is_held}
    found = {counts.oldest.workflow_type: counts.oldest.since} if counts.oldest else {}
    for each in due:
        is_held = not each.begun and not held.isdisjoint([f"queue:{each.queue}", f"type:{each.workflow_type}"])
        if each.queue in (undoing if each.compensating else everything) and not is_held:
            found[each.workflow_type] = min(each.since, found.get(each.workflow_type, each.since))
    return found


def _taken(workers: list[tuple[str, str, int]]) -> tuple[set[str], set[str]]:
    """The queues of which live workers take everything; and those of which they take what is to be undone."""
    everything = {queue for queue, only, _ in workers if not only}
    return everything, everything | {queue for queue, only, _ in workers if only == COMPENSATION}


def _left_in_hand() -> list[tuple[Any, ...]]:
    """The workflows in the hands of workers that are gone, host and all: their attempts stay open until another worker
    takes them up. The oldest first."""
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


def _heads(held: list[str]) -> list[tuple[Any, ...]]:
    """For each queue with rows: what has been due the longest, of workflows that are undone and of the others.

    It takes as many steps down the index as there are queues. Running workflows are passed over; there are no more than
    workers. No more of the others are read than are counted elsewhere: in a queue with more than that to undo, or of a
    held type, the oldest of the others may be missed. What is `held` and has not begun waits for no worker.
    """
    due = """SELECT id, invisible_until, compensating, begun, workflow_type FROM workflows_workflow
                          WHERE queue = queues.queue AND invisible_until <= statement_timestamp()"""
    with connection.cursor() as cursor:
        cursor.execute(
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
            {"limit": bounded.limit(), "held": held},
        )
        heads: list[tuple[Any, ...]] = cursor.fetchall()
        return heads

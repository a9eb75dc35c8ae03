"""What the console's home page shows: counts, what has waited longest, and how each service stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, OuterRef, QuerySet, Subquery
from django.utils import timezone

from workflows.definition import definitions
from workflows.models import Chore, CircuitEvent, ManualTask, Service, State, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.manual_task import DUE
from workflows.models.workflow import is_parked_on
from workflows.outages import circuits, parking
from workflows.outages.circuits import CircuitState
from workflows.postgres.skip_scan import skip_scan
from workflows.postgres.statements import fetch_one

# Seconds. Clocks that are kept right by small steps are no news.
CLOCK_TOLERANCE = 5.0

# Nobody needs the difference between 10,000 and 20,000, and the database need not count them.
COUNT_LIMIT = 10_000
# There are as many services as the code has clients for.
SERVICES_SHOWN = 200
TROUBLED_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Count:
    """A count that stops at COUNT_LIMIT: `number` is one above it when there are more."""

    label: str
    state: str
    number: int

    def __str__(self) -> str:
        return counted(self.number)


def counted(number: int) -> str:
    """A number that was counted to one above COUNT_LIMIT at the most, as people read it: `10,000+`."""
    return f"{COUNT_LIMIT:,}+" if number > COUNT_LIMIT else f"{number:,}"


@dataclass(frozen=True, slots=True)
class Hidden:
    """Workflows that no worker takes yet, and nothing has rescheduled: the database's clock was set back since they
    came.

    They read as queued. The last of those counted is due at `until`.
    """

    count: Count
    until: datetime


@dataclass(frozen=True, slots=True)
class Summary:
    at: datetime
    states: list[Count]
    tasks: Count
    next_task: ManualTask | None
    failing_maintenance: list[Chore]
    hidden: Hidden | None


def summary() -> Summary:
    tasks = ManualTask.objects.open()
    return Summary(
        at=timezone.now(),
        states=[_count_in_state(state) for state in State],
        tasks=Count("open tasks", "open", tasks[: COUNT_LIMIT + 1].count()),
        next_task=tasks.only("due_at", "expires_at").order_by(DUE, "id").first(),
        failing_maintenance=list(Chore.objects.exclude(failing_since=None).order_by("failing_since")),
        hidden=_hidden(),
    )


_TYPES = skip_scan("types", "workflows_manualtask", "state = 'open'", "task_type")


def open_task_types() -> list[str]:
    """The types of the open tasks, in order."""
    (found,) = fetch_one(
        f"""WITH RECURSIVE {_TYPES}
           SELECT coalesce(array_agg(task_type ORDER BY task_type), '{{}}') FROM types CROSS JOIN LATERAL (
                  SELECT FROM workflows_manualtask t JOIN workflows_workflow w ON w.id = t.workflow_id
                   WHERE t.task_type = types.task_type AND t.state = 'open' AND w.status = 'PENDING' LIMIT 1) open""",  # noqa: S608 (ours)
        (),
    ) or ([],)
    return list(found)


def _count_in_state(state: State) -> Count:
    parts = Workflow.objects.queued(COUNT_LIMIT) if state == State.QUEUED else [Workflow.objects.in_state(state)]
    number = sum(rows.order_by().values("pk")[: COUNT_LIMIT + 1].count() for rows in parts)
    return Count(state.label, state.value, min(number, COUNT_LIMIT + 1))


def _queues() -> list[str]:
    return sorted({definition.queue for definition in definitions().values()})


def _hidden() -> Hidden | None:
    """The workflows that were stored in what is the future now, and are due only then; None when there are none.

    None of them has started. They are among those that are due next, and no more of these are looked at than are
    counted.
    """
    number, last = 0, None
    for queue in _queues():
        found, until = fetch_one(
            """SELECT count(*), max(invisible_until)
                 FROM (SELECT created_at, invisible_until FROM workflows_workflow
                        WHERE status = 'PENDING' AND NOT begun AND queue = %(queue)s
                          AND invisible_until > statement_timestamp() + %(tolerance)s * interval '1 second'
                        ORDER BY invisible_until, id LIMIT %(limit)s) next
                WHERE invisible_until <= created_at""",
            {"queue": queue, "tolerance": CLOCK_TOLERANCE, "limit": COUNT_LIMIT + 1},
        ) or (0, None)
        number += found
        last = max(filter(None, (last, until)), default=None)
    return Hidden(Count("hidden", "hidden", number), last) if last else None


# --- Services -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Standing:
    """How a service stands: its circuit, what waits for it, and the last word of its story.

    `service` has the attribute `now`. It is none of the table's where workflows are parked on a name that has no row.
    `longest` is the number of the workflow that has been parked on it for the longest, since `longest_since`.
    """

    service: Service
    state: CircuitState
    parked: Count
    longest: int | None
    longest_since: datetime | None
    last_event: CircuitEvent | None

    @property
    def pk(self) -> str:
        return self.service.name

    @property
    def since(self) -> datetime | None:
        """Since when its circuit has been as it is."""
        match self.state:
            case CircuitState.CLOSED:
                return self.service.closed_at
            case CircuitState.SUSPECTED:
                return self.service.since
        return self.service.opened_at


def standings() -> list[Standing]:
    """All services that a worker has met unavailable, or that workflows are parked on: those in trouble come first."""
    rows = Service.objects.order_by(F("opened_at").desc(nulls_last=True), F("since").desc(nulls_last=True), "name")
    found = _standings(list(_told(rows)[:SERVICES_SHOWN]), parking.names())
    return sorted(found, key=lambda each: (list(CircuitState).index(each.state), -each.parked.number, each.pk))


def troubled() -> list[Standing]:
    """The services that are not called as usual, or that workflows wait for."""
    return [each for each in standings() if each.state != CircuitState.CLOSED or each.parked.number][:TROUBLED_SHOWN]


def standing(name: str) -> Standing | None:
    """How one service stands; None if no worker has met it unavailable and nothing is parked on it."""
    rows = list(_told(Service.objects.filter(name=name)))
    waited_for = Workflow.objects.filter(is_parked_on(name))
    return next(iter(_standings(rows, [name] if rows or waited_for.exists() else [])), None)


def _told(rows: QuerySet[Service]) -> QuerySet[Service]:
    story = CircuitEvent.objects.filter(service=OuterRef("name")).order_by("-id")
    return rows.annotate(now=ClockTimestamp(), last_event=Subquery(story.values("pk")[:1]))


def _standings(rows: Sequence[Any], parked_on: Sequence[str]) -> list[Standing]:
    rows = [*rows, *map(_without_row, sorted(set(parked_on) - {row.name for row in rows}))]
    parked = _parked([row.name for row in rows])
    events = CircuitEvent.objects.in_bulk([row.last_event for row in rows if row.last_event])
    return [
        Standing(row, circuits.state_of(row), *parked[row.name], last_event=events.get(row.last_event)) for row in rows
    ]


def _without_row(name: str) -> Service:
    service: Any = Service(name=name, failed=0, answered=0, held_by="", cohort=0)
    service.now, service.last_event = timezone.now(), None
    return service  # type: ignore[no-any-return]


def _parked(names: Sequence[str]) -> dict[str, tuple[Count, int | None, datetime | None]]:
    """Of each service: how many workflows are parked on it, and the one of those counted that has been for the longest.

    They are counted in the order in which they are released.
    """
    columns: Any = fetch_one(
        """SELECT coalesce(array_agg(name), '{}'), array_agg(number), array_agg(longest), array_agg(since)
             FROM unnest(%s::text[]) name
            CROSS JOIN LATERAL (
                SELECT count(*) number, (array_agg(id ORDER BY parked_at, id))[1] longest, min(parked_at) since
                  FROM (SELECT id, parked_at FROM workflows_workflow
                         WHERE status = 'PENDING' AND parked_on = name AND parked_on <> ''
                         ORDER BY invisible_until, id LIMIT %s) next) parked""",
        (list(names), COUNT_LIMIT + 1),
    )
    return {
        name: (Count(State.PARKED.label, State.PARKED.value, number), longest, since)
        for name, number, longest, since in zip(*(column or [] for column in columns), strict=True)
    }

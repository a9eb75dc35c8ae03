"""SERVICES: how each service stands, as its circuit and what is parked on it say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import F, OuterRef, QuerySet, Subquery
from django.utils import timezone

from workflows import times
from workflows.features.outages import circuits, metrics
from workflows.features.outages.circuits import CircuitState
from workflows.features.outbox.destinations import SERVICES
from workflows.health import bounded
from workflows.health.bounded import Count, Link
from workflows.health.families import Family, Section
from workflows.health.figures import Figures
from workflows.health.reasons import NAMED, About, Level, Piece, Reason, of, reason
from workflows.models import CircuitEvent, Service, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import PARKED_SQL, is_parked_on
from workflows.postgres import often
from workflows.postgres.often import fetch_row
from workflows.state import parking

# There are as many services as the code has clients for.
SERVICES_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Standing:
    """How a circuit stands: whether it is closed, what waits for it, and the last entry of its history.

    `service` has the attribute `now`, and may be unsaved: workflows can be parked on a name that has no row. `longest`
    is the number of the workflow that has been parked the longest, since `longest_since`. `cap`: so many of its calls
    are made at a time, if a user has set that.
    """

    service: Service
    state: CircuitState
    parked: Count
    longest: int | None
    longest_since: datetime | None
    last_event: CircuitEvent | None
    cap: int | None = None

    @property
    def pk(self) -> str:
        return self.service.name

    @property
    def is_destination(self) -> bool:
        """Whether events are sent to it, and no workflow calls it."""
        return self.service.name.startswith(SERVICES)

    @property
    def is_called(self) -> bool:
        """Whether it is called as usual."""
        return self.state in (CircuitState.CLOSED, CircuitState.SUSPECTED)

    @property
    def is_in_trouble(self) -> bool:
        """Whether it is not called as usual, or workflows still wait for it."""
        return not self.is_called or bool(self.parked.number)

    @property
    def since(self) -> datetime | None:
        """Since when its circuit has been as it is."""
        match self.state:
            case CircuitState.CLOSED:
                return self.service.closed_at
            case CircuitState.SUSPECTED:
                return self.service.since
        return self.service.opened_at


def standings(*, with_events: bool = True) -> list[Standing]:
    """All services that a worker has met unavailable, or that workflows are parked on; those in trouble come first."""
    return by_trouble(_services, parking.services(), with_events=with_events)


def by_trouble(
    rows: Callable[[], QuerySet[Service]], parked_on: Sequence[str] = (), *, with_events: bool = True
) -> list[Standing]:
    """How these circuits stand, those in trouble first: 200 of them, and what stands for `parked_on` without a row.

    `rows` is a function of a module, whose query is always the same and `in_order`. Without events there is no
    `longest` either: for figures.
    """
    found = standings_of(rows() if with_events else often.instances(rows), parked_on, with_events=with_events)
    return sorted(found, key=lambda each: (list(CircuitState).index(each.state), -each.parked.number, each.pk))


def in_order(rows: QuerySet[Service]) -> QuerySet[Service]:
    """These circuits with the attribute `now`, what is out or may be out first; 200 of them."""
    rows = rows.order_by(F("opened_at").desc(nulls_last=True), F("since").desc(nulls_last=True), "name")
    return rows.annotate(now=ClockTimestamp())[:SERVICES_SHOWN]


def _services() -> QuerySet[Service]:
    return in_order(Service.objects.filter(step=""))


def standing(name: str) -> Standing | None:
    """How one circuit stands; None if no worker has met it and nothing is parked on it."""
    rows = in_order(Service.objects.filter(name=name))
    waited_for = Workflow.objects.filter(is_parked_on(name))
    return next(iter(standings_of(rows, [name] if waited_for.exists() else [])), None)


def standings_of(rows: Iterable[Service], parked_on: Sequence[str] = (), *, with_events: bool = True) -> list[Standing]:
    """As `by_trouble`, in the order of the rows."""
    found = list(rows)
    found += map(_without_row, sorted(set(parked_on) - {row.name for row in found}))
    if not found:
        return []
    names = [row.name for row in found]
    parked_and_cap = _parked_and_cap(names, with_longest=with_events)
    events = {each.service: each for each in _last_events(names)} if with_events else {}
    standings = []
    for row in found:
        parked, longest, since, cap = parked_and_cap[row.name]
        standings.append(Standing(row, circuits.state_of(row), parked, longest, since, events.get(row.name), cap))
    return standings


def _last_events(names: Sequence[str]) -> QuerySet[CircuitEvent]:
    """The newest event of each of these services: by one look at its history each, which may be long."""
    newest = CircuitEvent.objects.filter(service=OuterRef("name")).order_by("-id").values("pk")[:1]
    return CircuitEvent.objects.filter(pk__in=Service.objects.filter(name__in=names).values_list(Subquery(newest)))


def _without_row(name: str) -> Service:
    service: Any = Service(name=name, step="", elsewhere=False, failed=0, answered=0, held_by="", cohort=0)
    service.now = timezone.now()
    return service  # type: ignore[no-any-return]


def _parked_and_cap(
    names: Sequence[str], *, with_longest: bool
) -> dict[str, tuple[Count, int | None, datetime | None, int | None]]:
    """For each service: how many workflows are parked, counted in the order of release, and which for the longest.

    And how many calls of it are made at a time. Without the longest, the index alone is read.
    """
    row, longest = "", "NULL::bigint longest, NULL::timestamptz since"
    if with_longest:
        row = "id, parked_at"
        longest = "(array_agg(id ORDER BY parked_at, id))[1] longest, min(parked_at) since"
    columns = fetch_row(
        f"""SELECT coalesce(array_agg(name), '{{}}'), array_agg(number), array_agg(longest), array_agg(since),
                   array_agg(pace.at_once)
             FROM unnest(%s::text[]) name
             LEFT JOIN workflows_pace pace ON pace.key = concat('service:', name)
            CROSS JOIN LATERAL (
                SELECT count(*) number, {longest}
                  FROM (SELECT {row} FROM workflows_workflow
                         WHERE {PARKED_SQL} AND parked_on = name
                         ORDER BY invisible_until, id LIMIT %s) next) parked""",  # noqa: S608 (ours)
        (list(names), bounded.limit() + 1),
    )
    return {
        name: (Count(number, Link("workflow", filters=(("parked_on", name),))), longest, since, cap)
        for name, number, longest, since, cap in zip(*(column or [] for column in columns), strict=True)
    }


@dataclass(frozen=True, slots=True)
class Services(Figures):
    services: list[Standing] = field(default_factory=list)

    @property
    def troubled(self) -> list[Standing]:
        """Services that are not called as usual, and those that workflows wait for."""
        return [each for each in self.services if each.is_in_trouble]

    def reasons(self, at: datetime) -> Mapping[About, Iterable[Reason]]:
        return {About.SERVICES: self._of_services(at)}

    def _of_services(self, at: datetime) -> Iterator[Reason]:
        troubled = self.troubled
        for each in troubled[:NAMED]:
            service = Piece(each.pk, Link("service", pk=each.pk))
            if each.is_called:
                again = f" has {each.cap} calls at a time, " if each.cap else " is called again, "
                yield reason(Level.SLOW, service, Piece(again), of(each.parked, "still parked"))
                continue
            how = "held" if each.state == CircuitState.HELD else "down"
            is_down = f" has been {how}{since(each, at)}" if each.since else f" is {how}"
            yield reason(Level.SLOW, service, Piece(is_down), *parked(each), verdict=f"A service is {how}")
        if len(troubled) > NAMED:
            yield reason(Level.SLOW, Piece("other services", Link("service")), Piece(" are in trouble, too"))
        suspected = [each for each in self.services if each.state == CircuitState.SUSPECTED and each not in troubled]
        for each in suspected[:NAMED]:
            yield reason(Level.WELL, Piece(each.pk, Link("service", pk=each.pk)), Piece(" may be down"))
        if len(suspected) > NAMED:
            yield reason(Level.WELL, Piece("other services", Link("service")), Piece(" may be down, too"))

    def families(self, at: datetime) -> Mapping[Section, Iterable[Family]]:
        return {Section.SERVICES: metrics.of_services(self.services)}


def since(each: Standing, at: datetime) -> str:
    return f" since {times.brief(each.since, at)}" if each.since else ""


def parked(each: Standing) -> list[Piece]:
    return [Piece(", "), of(each.parked, "parked")] if each.parked.number else []

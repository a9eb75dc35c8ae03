"""SERVICES: how each service, and each cause, stands, as its circuit and what is parked on it say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from workflows.definition import titled_step
from workflows.features.outages import circuits
from workflows.features.outages.circuits import CircuitState
from workflows.features.outbox.destinations import SERVICES
from workflows.health import bounded
from workflows.health.bounded import Count, Link
from workflows.models import CircuitEvent, Service, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import PARKED_SQL, is_parked_on
from workflows.postgres.statements import fetch_row
from workflows.state import parking

SEE_SERVICES = "workflows.view_service"

# There are as many services as the code has clients for.
SERVICES_SHOWN = 200
# A cause whose brake is off is shown for so long, or while workflows are parked on it.
LATELY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a service, or a cause, stands: its circuit, what waits for it, and the last entry of its history.

    `service` has the attribute `now`, and may be unsaved: workflows can be parked on a name that has no row. `longest`
    is the number of the workflow that has been parked the longest, since `longest_since`.
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
    def is_cause(self) -> bool:
        return self.service.is_cause

    @property
    def is_destination(self) -> bool:
        """Whether events are sent to it, and no workflow calls it."""
        return self.service.name.startswith(SERVICES)

    @property
    def titled(self) -> str:
        """The step of a cause, in a sentence."""
        return titled_step(self.service.workflow_type, self.service.step)

    @property
    def is_called(self) -> bool:
        """Whether it is called as usual; of a cause, whether the brake is off."""
        return self.state in (CircuitState.CLOSED, CircuitState.SUSPECTED)

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
    """All services that a worker has met unavailable, or that workflows are parked on; those in trouble come first.

    And the causes whose brake is on, or was lately, or on which workflows are parked.
    """
    parked_on = parking.names()
    is_news = Q(opened_at__isnull=False) | Q(closed_at__gt=timezone.now() - LATELY) | Q(name__in=parked_on)
    rows = Service.objects.filter(Q(step="") | is_news)
    rows = rows.order_by(F("opened_at").desc(nulls_last=True), F("since").desc(nulls_last=True), "name")
    found = _standings(list(_told(rows)[:SERVICES_SHOWN]), parked_on)
    return sorted(found, key=lambda each: (list(CircuitState).index(each.state), -each.parked.number, each.pk))


def braked() -> list[Standing]:
    """The causes whose brake is on, the oldest first."""
    rows = Service.objects.exclude(step="").filter(opened_at__isnull=False).order_by("opened_at", "name")
    return _standings(list(_told(rows)[:SERVICES_SHOWN]), [])


def standing(name: str) -> Standing | None:
    """How one service, or cause, stands; None if no worker has met it and nothing is parked on it."""
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
    service: Any = Service(name=name, step="", elsewhere=False, failed=0, answered=0, held_by="", cohort=0)
    service.now, service.last_event = timezone.now(), None
    return service  # type: ignore[no-any-return]


def _parked(names: Sequence[str]) -> dict[str, tuple[Count, int | None, datetime | None]]:
    """For each service: how many workflows are parked, counted in the order of release, and which for the longest."""
    columns = fetch_row(
        f"""SELECT coalesce(array_agg(name), '{{}}'), array_agg(number), array_agg(longest), array_agg(since)
             FROM unnest(%s::text[]) name
            CROSS JOIN LATERAL (
                SELECT count(*) number, (array_agg(id ORDER BY parked_at, id))[1] longest, min(parked_at) since
                  FROM (SELECT id, parked_at FROM workflows_workflow
                         WHERE {PARKED_SQL} AND parked_on = name
                         ORDER BY invisible_until, id LIMIT %s) next) parked""",  # noqa: S608 (ours)
        (list(names), bounded.limit() + 1),
    )
    return {
        name: (Count(number, Link("workflow", filters=(("parked_on", name),))), longest, since)
        for name, number, longest, since in zip(*(column or [] for column in columns), strict=True)
    }

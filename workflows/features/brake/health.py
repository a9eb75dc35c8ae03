"""CAUSES: at which steps many fail, as the circuits of these causes and what is parked on them say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING

from django.db.models import Q, QuerySet
from django.db.models.expressions import RawSQL

from workflows.definition import titled_step
from workflows.features.brake import metrics
from workflows.features.outages import health
from workflows.features.outages.circuits import CircuitState
from workflows.features.outages.health import Standing
from workflows.health.bounded import Link
from workflows.health.families import Family, Section
from workflows.health.figures import Figures
from workflows.health.reasons import NAMED, About, Level, Piece, Reason, of, reason
from workflows.models import Service
from workflows.models.clock import ClockTimestamp
from workflows.operations.guards import SEE_SERVICES
from workflows.state import parking
from workflows.wording import name_of_code

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# A cause whose brake is off is shown for so long, or while workflows are parked on it.
LATELY = timedelta(days=1)


def standings(*, with_events: bool = True) -> list[Standing]:
    """The causes whose brake is on, or was lately, or on which workflows are parked; those in trouble come first."""
    return health.by_trouble(_shown, with_events=with_events)


def _shown() -> QuerySet[Service]:
    lately, parked_on = Q(closed_at__gt=ClockTimestamp() - LATELY), Q(name__in=RawSQL(parking.NAMES, []))  # noqa: S611
    return health.in_order(Service.objects.exclude(step="").filter(Q(opened_at__isnull=False) | lately | parked_on))


def braked() -> list[Standing]:
    """The causes whose brake is on and that need somebody, the oldest first."""
    causes = health.in_order(Service.objects.exclude(step="").filter(opened_at__isnull=False))
    found = filter(needs_somebody, health.standings_of(causes))
    return sorted(found, key=attrgetter("service.opened_at", "pk"))


def needs_somebody(row: Standing) -> bool:
    """Whether the brake is on and workflows are parked, or workers of no other release, which has mended it, go on."""
    return not row.is_called and (bool(row.parked.number) or not row.service.elsewhere)


def titled(row: Standing) -> str:
    """The step of a cause, in a sentence."""
    return titled_step(row.service.workflow_type, row.service.step)


@dataclass(frozen=True, slots=True)
class Causes(Figures):
    causes: list[Standing] = field(default_factory=list)

    def reasons(self, at: datetime) -> Mapping[About, Iterable[Reason]]:
        return {About.STEPS: self._reasons(at)}

    def _reasons(self, at: datetime) -> Iterator[Reason]:
        """What many fail at, until somebody mends it."""
        troubled = [each for each in self.causes if each.is_in_trouble]
        for each in troubled[:NAMED]:
            step = Piece(titled(each), Link("service", pk=each.pk))
            if each.is_called:
                yield reason(Level.SLOW, step, Piece(" goes on again, "), of(each.parked, "still parked"))
                continue
            if not needs_somebody(each):
                left = Piece(" is left to workers of another release, and nothing waits for it")
                yield reason(Level.SLOW, step, left, verdict="A step is stopped")
                continue
            how = "has been held" if each.state == CircuitState.HELD else "has failed for many"
            to_others = [Piece(", left to workers of another release")] if each.service.elsewhere else []
            since = f" {how}{health.since(each, at)} ({name_of_code(each.service.code)})"
            yield reason(Level.TROUBLE, step, Piece(since), *health.parked(each), *to_others)
        if any(map(needs_somebody, troubled[NAMED:])):
            yield reason(Level.TROUBLE, Piece("other steps", Link("service")), Piece(" have failed for many, too"))

    def number_that_stand_still(self, user: User) -> int:
        return sum(map(needs_somebody, self.causes)) if user.has_perm(SEE_SERVICES) else 0

    def families(self, at: datetime) -> Mapping[Section, Iterable[Family]]:
        return {Section.STEPS: metrics.of_causes(self.causes)}

"""PACES: which queues, types and tenants are held, paced or capped, and how many workflows wait to begin there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet

from workflows import times
from workflows.definition import definitions
from workflows.features.outages.circuits import CircuitState, state_of
from workflows.features.pace import metrics
from workflows.features.pace.operations import is_known
from workflows.health import bounded
from workflows.health.bounded import Link
from workflows.health.families import Family, Section
from workflows.health.figures import Figures
from workflows.health.late import FRESH
from workflows.health.reasons import NAMED, About, Level, Piece, Reason, reason
from workflows.models import ApiKey, CircuitEvent, Pace, Service, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.pace import Key, Scope
from workflows.models.workflow import is_parked_on
from workflows.postgres import often
from workflows.postgres.skip_scan import skip_scan
from workflows.postgres.statements import fetch_all, fetch_row

TENANTS_SHOWN = 200


@dataclass(frozen=True, slots=True)
class PaceStanding:
    """The state of a queue, type, tenant or service. `waiting` counts workflows that have not begun, up to a limit."""

    key: Key
    pace: Pace
    now: datetime
    waiting: int
    last_event: CircuitEvent | None
    circuit: CircuitState | None = None  # of a service

    def __str__(self) -> str:
        return self.name

    @property
    def pk(self) -> str:
        return str(self.key)

    @property
    def name(self) -> str:
        """The name in a sentence."""
        return f"the {self.key.scope.label.lower()} {self.key.name}"

    @property
    def is_service(self) -> bool:
        """Whether it is a service: these have only a cap, and waiting workflows are parked."""
        return self.key.scope == Scope.SERVICE

    @property
    def is_held(self) -> bool:
        """Whether a hold is on. Each hold ends by itself."""
        return self.pace.held_until is not None and self.pace.held_until > self.now


def active() -> list[PaceStanding]:
    """What is held, paced or capped now."""
    return _standings(often.instances(_active))


def _active() -> QuerySet[Pace]:
    rows = Pace.objects.filter(Q(held_until__gt=ClockTimestamp()) | Q(per_second__gt=0) | Q(at_once__gt=0))
    return rows.order_by("key")


def everything() -> list[PaceStanding]:
    """All queues, types, tenants and services that this release knows, and all others that have a limit."""
    known = {str(Key(Scope.QUEUE, each.queue)) for each in definitions().values()}
    known |= {str(Key(Scope.TYPE, name)) for name in definitions()}
    tenants = ApiKey.objects.exclude(tenant="").values_list("tenant", flat=True).distinct()
    known |= {str(Key(Scope.TENANT, name)) for name in tenants[:TENANTS_SHOWN]}
    services = Service.objects.filter(step="").values_list("name", flat=True)
    known |= {str(Key(Scope.SERVICE, name)) for name in services[:TENANTS_SHOWN]}
    rows = {key: _unlimited(key) for key in sorted(known)}
    return _standings({**rows, **{each.key: each for each in Pace.objects.order_by("key")}}.values())


def standing(text: str) -> PaceStanding | None:
    """The state of one of them, by its key; None if the key names nothing."""
    if (key := Key.of(text)) is None or "\x00" in text:
        return None
    row = Pace.objects.filter(pk=text).first()
    if row is None and not is_known(key):
        return None
    return next(iter(_standings([row or _unlimited(text)])))


def _unlimited(key: str) -> Pace:
    """An unsaved row. It needs the empty texts that the database would fill in."""
    return Pace(key=key, held_by="", paced_by="", capped_by="")


def _standings(rows: Iterable[Pace]) -> list[PaceStanding]:
    found = [(each, key) for each in rows if (key := Key.of(each.key))]
    if not found:
        return []
    (now,) = fetch_row("SELECT clock_timestamp()")
    waiting = _waiting([key.name for _, key in found if key.scope == Scope.TENANT])
    circuits = _circuits([key.name for _, key in found if key.scope == Scope.SERVICE])
    for name in circuits:
        waiting[str(Key(Scope.SERVICE, name))] = bounded.count(Workflow.objects.filter(is_parked_on(name)))
    newest = CircuitEvent.objects.filter(service__in=[str(key) for _, key in found])
    events = {each.service: each for each in newest.order_by("service", "-id").distinct("service")}
    limit = bounded.limit() + 1
    return [
        PaceStanding(
            key,
            pace,
            now,
            min(waiting[pace.key], limit),
            events.get(pace.key),
            circuits[key.name] if key.scope == Scope.SERVICE else None,
        )
        for pace, key in found
    ]


def _circuits(names: list[str]) -> dict[str, CircuitState]:
    """The circuit's state of each of these services. A service without a row was never unavailable."""
    rows = Service.objects.filter(name__in=names).annotate(now=ClockTimestamp()) if names else ()
    return {**dict.fromkeys(names, CircuitState.CLOSED), **{row.name: state_of(row) for row in rows}}


_KINDS = skip_scan("kinds", "workflows_workflow", FRESH, "queue", "priority", "workflow_type")


def _waiting(tenants: list[str]) -> Counter[str]:
    """How many workflows have not begun, by their queue's, type's and tenant's key. Each count stops at a limit."""
    found = fetch_all(
        f"""WITH RECURSIVE {_KINDS}
            SELECT queue, workflow_type, tenant, number FROM kinds
             CROSS JOIN (SELECT unnest(%(tenants)s::text[]) UNION ALL SELECT NULL) tenants (tenant)
             CROSS JOIN LATERAL (
                SELECT count(*) AS number FROM (
                    SELECT FROM workflows_workflow w
                     WHERE {FRESH} AND w.queue = kinds.queue AND w.priority = kinds.priority
                       AND w.workflow_type = kinds.workflow_type AND w.tenant = tenants.tenant LIMIT %(limit)s) these
                 WHERE tenants.tenant IS NOT NULL
                UNION ALL
                SELECT count(*) AS number FROM (
                    SELECT FROM workflows_workflow w
                     WHERE {FRESH} AND w.queue = kinds.queue AND w.priority = kinds.priority
                       AND w.workflow_type = kinds.workflow_type AND tenants.tenant IS NULL LIMIT %(limit)s) these
                 ) counted""",  # noqa: S608 (ours)
        {"tenants": tenants, "limit": bounded.limit() + 1},
    )
    counted: Counter[str] = Counter()
    for queue, workflow_type, tenant, number in found:
        keys = [Key(Scope.TENANT, tenant)] if tenant else [Key(Scope.QUEUE, queue), Key(Scope.TYPE, workflow_type)]
        counted.update({str(key): number for key in keys})
    return counted


@dataclass(frozen=True, slots=True)
class Paces(Figures):
    """The limits that people have set."""

    paces: list[PaceStanding]

    @property
    def held(self) -> Collection[str]:
        return [each.pk for each in self.paces if each.is_held]

    def reasons(self, at: datetime) -> Mapping[About, Iterable[Reason]]:
        return {About.LIMITS: self._slowed_down(at)}

    def _slowed_down(self, at: datetime) -> Iterator[Reason]:
        """The limits as reasons: they are no trouble, but explain a wait and keep a limit from being forgotten."""
        found = [each for each in self.paces if not each.is_service]
        for each in found[:NAMED]:
            link = Piece(each.name, Link("pace", pk=each.pk))
            waiting = Piece(f", {bounded.text(each.waiting)} wait to begin") if each.waiting else Piece("")
            if each.is_held and each.pace.held_until:
                held = f" is held by {each.pace.held_by} until {times.brief(each.pace.held_until, at)}"
                yield reason(Level.SLOW, link, Piece(held), waiting, verdict="Held")
            elif each.waiting and each.pace.per_second:
                paced = f" goes at {each.pace.per_second:g} a second, as {each.pace.paced_by} has set it"
                yield reason(Level.SLOW, link, Piece(paced), waiting)
            elif each.waiting and each.pace.at_once:
                capped = f" has {each.pace.at_once} at a time, as {each.pace.capped_by} has set it"
                yield reason(Level.SLOW, link, Piece(capped), waiting)
        if len(found) > NAMED:
            yield reason(Level.SLOW, Piece("other queues or types", Link("pace")), Piece(" are held or paced, too"))

    def families(self, at: datetime) -> Mapping[Section, Iterable[Family]]:
        return {Section.LIMITS: metrics.families(self.paces)}

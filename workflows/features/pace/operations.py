"""What people may do with a queue, type, tenant or service: hold it, release it, set its pace and its cap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from workflows import times
from workflows.definition import definitions
from workflows.errors import NotAllowed
from workflows.features.outages.calls import LONGEST_NAME
from workflows.models import ApiKey, CircuitEvent, Pace, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.pace import Key, Scope
from workflows.operations.guards import SET_PACE, require, require_reason, short_transaction, stated
from workflows.operations.holding import why_not_hold_until

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# Starts a second. More is beyond what a database can start; the slowest is two an hour.
FASTEST, SLOWEST = 10_000.0, 0.0005
MOST_AT_ONCE = 1_000


def hold_queue(key: str, *, user: User, until: datetime, reason: str) -> str:
    """Start nothing new in a queue or type before `until`; started workflows continue. Replaces an earlier hold.

    Returns the end, in a sentence.
    """
    with _locked(key, user, reason, "a hold", of_service=False) as pace:
        if why_not := why_not_hold_until(until, now=pace.now, what="a queue or a type"):
            raise NotAllowed(why_not)
        pace.held_until, pace.held_by, pace.held_reason = until, user.get_username(), stated(reason)
        _record(pace, CircuitEvent.Kind.HELD, user, f"Until {times.both(until, dated=True)}. {stated(reason)}")
    return f"It is held until {times.both(until)}."


def release_queue(key: str, *, user: User, reason: str) -> None:
    """End a hold before its time."""
    with _locked(key, user, reason, "a release") as pace:
        if pace.held_until is None or pace.held_until <= pace.now:
            raise NotAllowed("It is not held.")
        pace.held_until, pace.held_by, pace.held_reason = None, "", ""
        _record(pace, CircuitEvent.Kind.RELEASED, user, stated(reason))


def set_pace(key: str, *, user: User, per_second: float | None, reason: str) -> None:
    """Start at most so many a second of a queue or type, over all workers. None: no limit."""
    with _locked(key, user, reason, "a pace", of_service=False) as pace:
        if per_second is not None and not SLOWEST <= per_second <= FASTEST:
            raise NotAllowed(f"A pace is {SLOWEST} to {FASTEST:,.0f} a second. To stop it, hold it.")
        said = "As fast as the workers can." if per_second is None else f"{per_second:g} a second."
        pace.per_second, pace.next_at = per_second, None
        pace.paced_by = user.get_username() if per_second else ""
        pace.paced_reason = stated(reason) if per_second else ""
        _record(pace, CircuitEvent.Kind.PACED, user, f"{said} {stated(reason)}")


def set_cap(key: str, *, user: User, at_once: int | None, reason: str) -> None:
    """Run at most so many at a time. None: as many as there are workers."""
    with _locked(key, user, reason, "a cap") as pace:
        if at_once is not None and not 1 <= at_once <= MOST_AT_ONCE:
            raise NotAllowed(f"A cap is 1 to {MOST_AT_ONCE:,}. To stop it, hold it.")
        said = "As many as there are workers." if at_once is None else f"{at_once} at a time."
        pace.at_once = at_once
        pace.capped_by = user.get_username() if at_once else ""
        pace.capped_reason = stated(reason) if at_once else ""
        _record(pace, CircuitEvent.Kind.CAPPED, user, f"{said} {stated(reason)}")


def is_known(key: Key) -> bool:
    """Whether a definition of this release, an API key or a workflow names it. Any service's name counts."""
    if key.scope == Scope.SERVICE:  # a service that was never unavailable has no row
        return len(key.name) <= LONGEST_NAME and "\0" not in key.name
    if key.scope == Scope.TENANT:
        return ApiKey.objects.filter(tenant=key.name).exists()
    if key.scope == Scope.TYPE:
        return key.name in definitions() or Workflow.objects.filter(workflow_type=key.name).exists()
    if key.name in {each.queue for each in definitions().values()}:
        return True
    return any(
        Workflow.objects.filter(status="PENDING", begun=begun, queue=key.name).exists() for begun in (False, True)
    )


def _record(pace: Pace, kind: CircuitEvent.Kind, user: User, reason: str) -> None:
    CircuitEvent.objects.create(service=pace.key, kind=kind, actor=user.get_username(), reason=reason)


@contextmanager
def _locked(key: str, user: User, reason: str, what: str, *, of_service: bool = True) -> Iterator[Any]:
    """Lock the row of a known queue, type or tenant, with the database's time; save it when the block ends."""
    require(user, SET_PACE)
    require_reason(reason, what)
    named = Key.of(key)
    if named is None or not (Pace.objects.filter(pk=key).exists() or is_known(named)):
        raise NotAllowed(f"There is no queue, type or tenant {key.partition(':')[2] or key}.")
    if named.scope == Scope.SERVICE and not of_service:
        raise NotAllowed("A service has a cap only, here; it is held on its own page.")
    with short_transaction():
        Pace.objects.bulk_create([Pace(key=key)], ignore_conflicts=True)
        pace = Pace.objects.annotate(now=ClockTimestamp()).select_for_update(no_key=True).get(pk=key)
        yield pace
        pace.save()

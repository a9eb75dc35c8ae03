"""What people may do with a service that workflows call: hold it, or try it now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from workflows.errors import NotAllowed
from workflows.models import Service, Workflow
from workflows.models.workflow import is_parked_on
from workflows.operations.guards import HOLD, TRY_NOW, require, require_reason, short_transaction, stated
from workflows.outages import circuits

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# A longer outage is held again: a forgotten hold stops the work all the same.
LONGEST_HOLD = timedelta(days=7)


def hold(name: str, *, user: User, until: datetime, reason: str) -> None:
    """Let no workflow call a service before `until`; then it is tried. A new hold replaces the old one.

    An attempt that is under way may still call it: workers read the circuits when they take a workflow up.
    """
    require(user, HOLD)
    require_reason(reason, "a hold")
    with _locked(name) as service:
        if why_not := why_not_hold_until(until, now=service.now):
            raise NotAllowed(why_not)
        circuits.hold(service, until=until, by=user.get_username(), reason=stated(reason))


def try_now(name: str, *, user: User, reason: str) -> None:
    """End the cool-off, or the hold, of an open circuit: one workflow tries the service."""
    require(user, TRY_NOW)
    require_reason(reason, "a trial")
    with _locked(name) as service:
        if service.opened_at is None:
            raise NotAllowed(f"Only a service whose circuit is open can be tried; workflows call {name}.")
        if circuits.is_trial_due(service):
            raise NotAllowed("A trial is due already: the next workflow that calls it makes it.")
        circuits.try_now(service, by=user.get_username(), reason=stated(reason))


def why_not_hold_until(until: datetime, *, now: datetime) -> str:
    """Why no service can be held until then, in a sentence; empty if it can."""
    if until <= now:
        return "That time is over: a service is held until a time to come."
    if until > now + LONGEST_HOLD:
        return f"A service is held for {LONGEST_HOLD.days} days at the most. It can be held again."
    return ""


@contextmanager
def _locked(name: str) -> Iterator[Any]:
    """The locked row of a known service; it is made if workflows are parked on the service and it has none."""
    if not (Service.objects.filter(pk=name).exists() or Workflow.objects.filter(is_parked_on(name)).exists()):
        raise NotAllowed(f"No workflow has met a service {name} unavailable, or waits for it.")
    busy = "A worker is writing about it right now; try again in a moment."
    with short_transaction(busy), circuits.locked(name, wait=True) as service:
        yield service

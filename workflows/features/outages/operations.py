"""What people may do with a service that workflows call: hold it, or try it now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from workflows import times
from workflows.errors import NotAllowed
from workflows.features.outages import circuits
from workflows.models import Service, Workflow
from workflows.models.workflow import is_parked_on
from workflows.operations.guards import HOLD, TRY_NOW, require, require_reason, short_transaction, stated
from workflows.operations.holding import why_not_hold_until

if TYPE_CHECKING:
    from django.contrib.auth.models import User

UP = "Only a service that is down or held can be tried; workflows call {}."


def hold(name: str, *, user: User, until: datetime, reason: str) -> str:
    """Let no workflow call a service before `until`; then it is tried. A new hold replaces the old one.

    Returns until when, in a sentence.

    An attempt that is under way may still call it: workers read the circuits when they take a workflow up.
    """
    require(user, HOLD)
    require_reason(reason, "a hold")
    with locked(name) as service:
        if why_not := why_not_hold_until(until, now=service.now):
            raise NotAllowed(why_not)
        circuits.hold(service, until=until, by=user.get_username(), reason=stated(reason))
    return f"It is held until {times.both(until)}."


def try_now(name: str, *, user: User, reason: str, up: str = UP) -> None:
    """End the cool-off, or the hold, of an open circuit: one workflow tries the service.

    `up` is the refusal while it is closed.
    """
    require(user, TRY_NOW)
    require_reason(reason, "a trial")
    with locked(name) as service:
        if service.opened_at is None:
            raise NotAllowed(up.format(name))
        if circuits.is_trial_due(service):
            raise NotAllowed("A trial is due already: the next workflow that calls it makes it.")
        circuits.try_now(service, by=user.get_username(), reason=stated(reason))


@contextmanager
def locked(name: str) -> Iterator[Any]:
    """The locked row of a known service; it is made if workflows are parked on the service and it has none."""
    if not (Service.objects.filter(pk=name).exists() or Workflow.objects.filter(is_parked_on(name)).exists()):
        raise NotAllowed(f"No workflow has met a service {name} unavailable, or waits for it.")
    busy = "A worker is writing about it right now; try again in a moment."
    with short_transaction(busy), circuits.locked(name, wait=True) as service:
        yield service

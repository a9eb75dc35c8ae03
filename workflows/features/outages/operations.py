"""What people may do with a service that workflows call, or with a cause: hold it, try it now, or let fail."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from workflows import times
from workflows.errors import NotAllowed
from workflows.features.outages import causes, circuits
from workflows.models import Service, Workflow
from workflows.models.workflow import is_parked_on
from workflows.operations.guards import HOLD, LET_FAIL, TRY_NOW, require, require_reason, short_transaction, stated
from workflows.operations.holding import why_not_hold_until

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.db.models import QuerySet

# So many workflows may be let fail by one person.
ALONE = 20


def hold(name: str, *, user: User, until: datetime, reason: str) -> str:
    """Let no workflow call a service before `until`; then it is tried. A new hold replaces the old one.

    Returns until when, in a sentence.

    An attempt that is under way may still call it: workers read the circuits when they take a workflow up.
    """
    require(user, HOLD)
    require_reason(reason, "a hold")
    with _locked(name) as service:
        if why_not := why_not_hold_until(until, now=service.now):
            raise NotAllowed(why_not)
        circuits.hold(service, until=until, by=user.get_username(), reason=stated(reason))
    return f"It is held until {times.both(until)}."


def try_now(name: str, *, user: User, reason: str) -> None:
    """End the cool-off, or the hold, of an open circuit: one workflow tries the service."""
    require(user, TRY_NOW)
    require_reason(reason, "a trial")
    with _locked(name) as service:
        if service.opened_at is None:
            raise NotAllowed(_why_not_try(service))
        if circuits.is_trial_due(service):
            raise NotAllowed("A trial is due already: the next workflow that calls it makes it.")
        circuits.try_now(service, by=user.get_username(), reason=stated(reason))


def let_fail(name: str, *, user: User, reason: str, decides: Collection[int] = (1,)) -> str:
    """Let everything fail that is parked on a cause by now; its charges are given back, as after any failure.

    Of more than `ALONE` two people decide that: the first call asks, that of another user lets them fail. Returns which
    it was, in a sentence. `decides`: [0] for a user who has been told that they only ask.
    """
    require(user, LET_FAIL)
    require_reason(reason, "to let workflows fail")
    with _locked(name) as service:
        if why_not := why_not_let_fail(service, user):
            raise NotAllowed(why_not)
        if lets_fail(service):
            if 1 not in decides:
                raise NotAllowed("It would happen at once now, and not only be asked for. Please look again.")
            causes.let_fail(service, by=user.get_username(), reason=stated(reason))
            return "They fail now, and what they have done is reversed."
        causes.ask_to_let_fail(service, by=user.get_username(), reason=stated(reason))
        return "You have asked for it. They fail when another user says so, too."


def why_not_let_fail(service: Service, user: User) -> str:
    """Why this user cannot let fail what is parked there, in a sentence; empty if they can."""
    if not service.is_cause:
        return "Only what is parked on a cause can be let fail; a service comes back."
    if service.opened_at is None:
        return "The brake is off: what is parked goes on by itself."
    if service.let_fail_until:
        return f"What is parked is failing already: {service.let_fail_by} has said so."
    if not parked_to_fail(service.name).exists():
        return "Nothing that could fail is parked on it; what is being reversed has failed already."
    if service.asked_by == user.get_username() and _are_many(service.name):
        return "You have asked for this yourself: another user has to let them fail (four eyes)."
    return ""


def lets_fail(service: Service) -> bool:
    """Whether the next user who says so lets them fail, and does not only ask."""
    return bool(service.asked_by) or not _are_many(service.name)


def parked_to_fail(name: str) -> QuerySet[Workflow]:
    """The workflows that are parked on a cause and would be let fail."""
    return Workflow.objects.filter(is_parked_on(name), compensating=False)


def _are_many(name: str) -> bool:
    return parked_to_fail(name)[: ALONE + 1].count() > ALONE


def _why_not_try(service: Service) -> str:
    if service.is_cause:
        return "Only a step that is stopped can be tried; workflows go on with this one."
    return f"Only a service that is down or held can be tried; workflows call {service.name}."


@contextmanager
def _locked(name: str) -> Iterator[Any]:
    """The locked row of a known service; it is made if workflows are parked on the service and it has none."""
    if not (Service.objects.filter(pk=name).exists() or Workflow.objects.filter(is_parked_on(name)).exists()):
        raise NotAllowed(f"No workflow has met a service {name} unavailable, or waits for it.")
    busy = "A worker is writing about it right now; try again in a moment."
    with short_transaction(busy), circuits.locked(name, wait=True) as service:
        yield service

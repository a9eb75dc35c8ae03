"""What people may do with a cause: hold it, as a service, try it, or let fail what waits for it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from workflows import users
from workflows.errors import NotAllowed
from workflows.features.brake import causes
from workflows.features.outages import operations as services
from workflows.models import Service, Workflow
from workflows.models.workflow import is_parked_on
from workflows.operations.guards import LET_FAIL, require, require_reason, stated, why_not_second

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.db.models import QuerySet

# So many workflows may be let fail by one person.
ALONE = 20
GOES_ON = "Only a step that is stopped can be tried; workflows go on with this one."


def try_now(name: str, *, user: User, reason: str) -> None:
    """End the cool-off, or the hold, of a cause, or of a service."""
    is_cause = Service.objects.filter(name=name).exclude(step="").exists()
    services.try_now(name, user=user, reason=reason, up=GOES_ON if is_cause else services.UP)


def let_fail(name: str, *, user: User, reason: str, decides: Collection[int] = (1,)) -> str:
    """Let everything fail that is parked on a cause by now; its charges are given back, as after any failure.

    Of more than `ALONE` two people decide that: the first call asks, that of another user lets them fail. Returns which
    it was, in a sentence. `decides`: [0] for a user who has been told that they only ask.
    """
    require(user, LET_FAIL)
    require_reason(reason, "to let workflows fail")
    with services.locked(name) as service:
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
    if not (service.asked_by and _are_many(service.name)):
        return ""
    if service.asked_by == user.get_username():
        return "You have asked for this yourself: another user has to let them fail (four eyes)."
    first = users.named(service.asked_by).first()
    return why_not_second(first, user, service.asked_at) if first and service.asked_at else ""


def lets_fail(service: Service) -> bool:
    """Whether the next user who says so lets them fail, and does not only ask."""
    return bool(service.asked_by) or not _are_many(service.name)


def parked_to_fail(name: str) -> QuerySet[Workflow]:
    """The workflows that are parked on a cause and would be let fail."""
    return Workflow.objects.filter(is_parked_on(name), compensating=False)


def _are_many(name: str) -> bool:
    return parked_to_fail(name)[: ALONE + 1].count() > ALONE

"""What people may do with failures besides a retry: acknowledge them with a note, or assign them to somebody."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from django.contrib.auth import get_user_model
from django.db.models import F, QuerySet

from workflows import times
from workflows.errors import NotAllowed
from workflows.models import AssignedCause, Event, FollowUp, State, Workflow
from workflows.models.clock import ClockTimestamp, microseconds
from workflows.models.failure import Cause
from workflows.models.follow_up import GIVEN_UP
from workflows.models.manual_task import PERMISSION_BACKEND
from workflows.operations.guards import (
    ACKNOWLEDGE,
    lock_workflow,
    record_event,
    record_for,
    require,
    short_transaction,
    stated,
)
from workflows.operations.payments import charged_among

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MONEY_HELD = "Its charge stands, or is unclear: look at it by itself."


def acknowledge(workflow_id: int, *, user: User, reason: str, seen: Collection[int], in_bulk: bool = False) -> None:
    """Record that somebody has dealt with a failed workflow, or with deferred steps that were given up.

    `reason` is the note. The workflow then needs nobody until it fails again; it can still be retried. `seen` are the
    failures that the user was shown (`failures_left`): a later one is not acknowledged. `in_bulk` refuses a failed
    workflow whose charge stands or is unclear, because it has to be looked at alone.
    """
    require(user, ACKNOWLEDGE)
    if not stated(reason):
        raise NotAllowed("Say what was done about it: what is acknowledged needs a note.")
    with short_transaction():
        workflow, state = lock_workflow(workflow_id)
        left = failures_left(workflow)
        if not left:
            raise NotAllowed(_why_nothing_left(workflow, state))
        if sorted(seen) != left:
            raise NotAllowed("It has failed again since you looked at it.")
        if workflow.status == Workflow.Status.FAILED:
            if in_bulk and charged_among([workflow_id]):
                raise NotAllowed(MONEY_HELD)
            Workflow.objects.filter(pk=workflow_id).update(acknowledged_failure=F("completed_at"))
            record_event(workflow_id, Event.Kind.ACKNOWLEDGED, user, step=workflow.current_step, reason=reason)
            return
        given_up = _given_up(workflow)
        steps = list(given_up.values_list("step", flat=True))
        given_up.update(acknowledged_failure=F("created_at"))
        record_event(workflow_id, Event.Kind.ACKNOWLEDGED, user, reason=reason, steps=steps)


def assign_cause(cause: Cause, *, user: User, to: int, reason: str = "") -> str:
    """Assign the failures of a cause to a user; return a sentence that says so."""
    require(user, ACKNOWLEDGE)
    colleague = able_to_acknowledge().filter(pk=to).first()
    if colleague is None:
        raise NotAllowed("This user cannot acknowledge failures: choose somebody else.")
    name = colleague.get_username()
    with short_transaction():
        given = {"assignee": colleague, "at": ClockTimestamp()}
        row, _ = AssignedCause.objects.update_or_create(given, **cause._asdict(), release="")
        record_for(row, user, f"Assigned to {name}.", reason)
    return f"It is assigned to {name}."


def able_to_acknowledge() -> QuerySet[User]:
    users = get_user_model().objects.with_perm(ACKNOWLEDGE, backend=PERMISSION_BACKEND)
    return users.filter(is_staff=True)


def failures_left(workflow: Workflow) -> list[int]:
    """The failures of a workflow that still need a person, as sorted times in microseconds, which identify them.

    A failed workflow has one. A complete one has one for each deferred step that was given up. Others have none.
    """
    match workflow.status:
        case Workflow.Status.FAILED if workflow.cancelled_at is None:
            failed_at = workflow.completed_at
            return [microseconds(failed_at)] if failed_at and failed_at != workflow.acknowledged_failure else []
        case Workflow.Status.COMPLETE:
            return sorted(map(microseconds, _given_up(workflow).values_list("created_at", flat=True)))
    return []


def acknowledgement(workflow: Workflow) -> Event | None:
    """The event of the last acknowledgement, with the user, time and note; None if there is none."""
    return Event.objects.filter(workflow=workflow.pk, kind=Event.Kind.ACKNOWLEDGED).order_by("-id").first()


def _given_up(workflow: Workflow) -> QuerySet[FollowUp]:
    return FollowUp.objects.filter(GIVEN_UP, workflow=workflow.pk).order_by("id")


def _why_nothing_left(workflow: Workflow, state: State) -> str:
    """Why there is nothing to acknowledge, in a sentence."""
    was_given_up = FollowUp.objects.filter(workflow=workflow.pk, due_at=None).exists()
    if (state == State.FAILED or was_given_up) and (done := acknowledgement(workflow)):
        return f"{done.actor} has acknowledged it already, at {times.second(done.at)}."
    return f"Only what has failed, or was given up, can be acknowledged; this one is {state.label.lower()}."

"""PAUSES: a person pauses one workflow, and somebody resumes it.

A paused workflow is an ordinary row that is not due: claims and signals know nothing of pauses. What a worker has in
hand is paused by maintenance, once it has ended. When the end of a pause passes, nothing goes on by itself: the pause
is overdue, and people are told.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from workflows import times
from workflows.effects import IN_DOUBT
from workflows.errors import NotAllowed
from workflows.models import Effect, Event, Pause, State, Workflow
from workflows.models.clock import ClockTimestamp, microseconds
from workflows.models.workflow import PAUSED
from workflows.operations.guards import (
    RUN_NOW,
    WorkflowBusy,
    lock_workflow,
    record_event,
    require,
    require_reason,
    require_status,
    short_transaction,
    stated,
)
from workflows.operations.holding import why_not_hold_until
from workflows.operations.workflows import close_open_attempt
from workflows.signals.waking import Slice
from workflows.state import history, transitions

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# Pauses that one slice of maintenance begins.
AT_A_TIME = 100


def pause(workflow_id: int, *, user: User, reason: str, until: datetime, seen: Collection[int] = ()) -> str:
    """Pause a workflow under way until somebody resumes it, by `until` at the latest; return when it begins.

    It is refused while a call is unclear, and while the workflow is reversed. If a worker has the workflow, it is
    paused as soon as its run has ended. A pause that the user has `seen` is prolonged, or cut short.
    """
    require(user, RUN_NOW)
    require_reason(reason, "a pause")
    if why_not := why_not_hold_until(until, now=timezone.now(), what="a workflow", done="paused"):
        raise NotAllowed(why_not)
    try:
        with short_transaction():
            workflow, state = lock_workflow(workflow_id)
            _require_pausable(workflow, state, until, seen)
            if is_in_doubt(workflow_id):
                raise NotAllowed("A call of it is unclear: it can be paused once that is known.")
            close_open_attempt(workflow_id)
            begun = _store(workflow_id, user, reason, until, begun_at=ClockTimestamp())
            _begin(begun)
        return f"It is paused until {times.both(until)}."
    except WorkflowBusy:
        with short_transaction():
            workflow = Workflow.objects.with_state().defer("payload", "context").get(pk=workflow_id)
            _require_pausable(workflow, State(workflow.state), until, seen)
            _store(workflow_id, user, reason, until, begun_at=None)
            record_event(workflow_id, Event.Kind.PAUSE_ASKED, user, reason=reason, until=until.isoformat())
        return "It is running: it is paused when this run has ended, unless it completes, and no call is unclear."


def _require_pausable(workflow: Workflow, state: State, until: datetime, seen: Collection[int]) -> None:
    only = "a workflow that is still under way can be paused"
    require_status(workflow, state, Workflow.Status.PENDING, only)
    if workflow.compensating:
        raise NotAllowed("It is being reversed: that is not paused.")
    if workflow.expires_at and until >= workflow.expires_at:
        raise NotAllowed(
            f"It fails if it is not complete by {times.both(workflow.expires_at)}: end the pause before that."
        )
    if seen_of(Pause.objects.filter(workflow=workflow.pk).first()) != list(seen):
        raise NotAllowed("Somebody has paused or resumed it since you looked.")


def is_in_doubt(workflow_id: int) -> bool:
    """Whether a call of the workflow may or may not have happened."""
    return Effect.objects.filter(workflow=workflow_id, state__in=IN_DOUBT).exists()


def seen_of(pause: Pause | None) -> list[int]:
    """What identifies a pause that a page has shown; empty if there is none."""
    return [microseconds(pause.asked_at)] if pause else []


def _store(workflow_id: int, user: User, reason: str, until: datetime, *, begun_at: ClockTimestamp | None) -> Pause:
    """Store a pause in place of the one that there may be: two users may ask for one at the same time."""
    given = {"until": until, "actor": user.get_username(), "reason": stated(reason), "begun_at": begun_at}
    Pause.objects.bulk_create(
        [Pause(workflow_id=workflow_id, **given)],
        update_conflicts=True,
        unique_fields=["workflow"],
        update_fields=["asked_at", *given],
    )
    return Pause.objects.get(workflow=workflow_id)


def _begin(pause: Pause) -> None:
    """The transaction holds the lock of the workflow's row."""
    transitions.pause(pause.workflow_id)
    kind, until = Event.Kind.PAUSED, pause.until.isoformat()
    history.record(pause.workflow_id, kind, actor=pause.actor, reason=pause.reason, until=until)


def resume(workflow_id: int, *, user: User, seen: Collection[int], reason: str = "") -> None:
    """End a pause, or the wish for one. The workflow is due at once, and looks again at what it waits for."""
    require(user, RUN_NOW)
    with short_transaction():
        pause = Pause.objects.select_for_update().filter(workflow=workflow_id).first()
        if pause is None or seen_of(pause) != list(seen):
            raise NotAllowed("Somebody has paused or resumed it since you looked.")
        # Also if two asked at once: the wish of one has taken the place of the other's pause, which has begun.
        if pause.begun_at or paused().filter(pk=workflow_id).exists():
            lock_workflow(workflow_id)
            if not paused().filter(pk=workflow_id).exists():
                raise NotAllowed("It is not paused any more: somebody has cancelled it, or it has expired.")
            transitions.resume(workflow_id)
        pause.delete()
        record_event(workflow_id, Event.Kind.RESUMED, user, reason=reason)


def paused() -> QuerySet[Workflow]:
    """The workflows that are paused."""
    return Workflow.objects.filter(status=Workflow.Status.PENDING, compensating=False, waiting_for=PAUSED)


def overdue() -> QuerySet[Pause]:
    """The pauses whose end has passed."""
    return Pause.objects.filter(begun_at__isnull=False, until__lte=Now())


def keep_up(after: int = 0) -> Slice:
    """Maintenance: begin what was asked for while a worker had the workflow, and forget pauses that are over."""
    is_paused = Exists(paused().filter(pk=OuterRef("workflow")))
    changed, _ = Pause.objects.filter(~is_paused, begun_at__isnull=False).delete()
    wanted = Pause.objects.select_for_update(skip_locked=True).filter(begun_at=None, pk__gt=after).order_by("id")
    found = list(wanted[:AT_A_TIME])
    for asked in found:
        rows = Workflow.objects.defer("payload", "context").filter(pk=asked.workflow_id)
        workflow = rows.select_for_update(no_key=True, skip_locked=True).first()
        if workflow is None:  # a worker has it
            continue
        if workflow.status != Workflow.Status.PENDING or workflow.compensating:
            asked.delete()
        elif workflow.waiting_for == PAUSED:  # by somebody who asked at the same moment
            Pause.objects.filter(pk=asked.pk).update(begun_at=ClockTimestamp())
        elif asked.until <= timezone.now():
            asked.delete()
            history.record(workflow.pk, Event.Kind.PAUSE_LAPSED, asked_by=asked.actor)
        elif not is_in_doubt(workflow.pk):
            Pause.objects.filter(pk=asked.pk).update(begun_at=ClockTimestamp())
            _begin(asked)
        else:
            continue
        changed += 1
    return Slice(changed, found[-1].pk if len(found) == AT_A_TIME else 0)

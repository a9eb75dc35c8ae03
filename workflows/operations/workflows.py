"""What people may do with a workflow: retry, run now, cancel."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q

from workflows import compensation, history, inbox, transitions
from workflows.definition import definitions
from workflows.errors import NotAllowed, WorkflowCancelled
from workflows.executor import describe_engine_error, last_error
from workflows.models import Effect, Event, ManualTask, Signal, State, Wait, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.operations.guards import CANCEL, RETRY, RUN_NOW, Running, record, require, take

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def retry(workflow_id: int, *, user: User, reason: str = "") -> None:
    """Start a failed or cancelled workflow again from its first step.

    A question that failed it (rejected, or expired) is asked again, and so is one that expired, or was closed, while
    nobody could decide; every other keeps its answer. What was undone is done again, under a new key; what a person
    has left as it is stays done. The time that it may take begins anew. Children that were cancelled with it are
    started again, too.
    """
    require(user, RETRY)
    _retry_children(workflow_id, user=user, reason=reason)
    with transaction.atomic(durable=True):
        workflow, state = take(workflow_id)
        if workflow.status != Workflow.Status.FAILED:
            raise NotAllowed(f"Only a failed workflow can be retried; this one is {state.label.lower()}.")
        definition = definitions().get(workflow.workflow_type)
        transitions.reopen(workflow_id, expires_after=definition.expires_after if definition else None)
        _ask_anew(workflow_id)
        kept = Effect.objects.filter(workflow=workflow_id, state=Effect.State.KEPT)
        kept.filter(result__isnull=True).update(state=Effect.State.UNKNOWN, undo_failures=0)
        kept.update(state=Effect.State.DONE, undo_failures=0)
        inbox.close_cancellations(workflow_id)
        inbox.restore_signals(workflow_id)
        record(workflow_id, Event.Kind.RETRIED, user, step=workflow.current_step, reason=reason)


def _retry_children(workflow_id: int, *, user: User, reason: str) -> None:
    """Start the children again that were cancelled with their parent, or are about to be; each by itself.

    Before the parent: should we not get to its end, the parent can be retried once more.
    """
    if not Workflow.objects.filter(pk=workflow_id, status=Workflow.Status.FAILED, cancelled_at__isnull=False).exists():
        return
    inbox.withdraw_cancellation_of_children(workflow_id)
    told = Signal.objects.filter(workflow=OuterRef("pk"), name=inbox.CANCEL, source=inbox.ENGINE)
    cancelled = Workflow.objects.filter(Exists(told), parent=workflow_id, cancelled_at__isnull=False)
    for child_id in cancelled.values_list("pk", flat=True):
        with suppress(NotAllowed):  # it is being undone, or somebody was quicker
            retry(child_id, user=user, reason=reason)


def _ask_anew(workflow_id: int) -> None:
    """Let the retry meet anew what was over, or closed, meanwhile (as what has failed it); the rest keeps its answers.

    A time goes on from when it was first met. Children may have been retried since: they are looked at once more.
    """
    no_longer_asked = [ManualTask.State.EXPIRED, ManualTask.State.CLOSED]
    closed = ManualTask.objects.filter(workflow=workflow_id, state__in=no_longer_asked).values("wait")
    of_undos = ManualTask.objects.filter(workflow=workflow_id, task_type=compensation.UNDO_TASK_TYPE).values("wait")
    over = Q(kind=Wait.Kind.SIGNAL, outcome="", deadline__lte=ClockTimestamp())
    joins = Q(kind=Wait.Kind.CHILDREN) & ~Q(outcome="expired")
    Wait.objects.filter(workflow=workflow_id).filter(
        over | Q(outcome="", pk__in=closed) | Q(pk__in=of_undos) | joins
    ).update(superseded=True)


def run_now(workflow_id: int, *, user: User, reason: str = "") -> None:
    """Make a workflow due at once that is retrying or waiting. Its count of failures stays as it is."""
    require(user, RUN_NOW)
    with transaction.atomic(durable=True):
        workflow, state = take(workflow_id)
        if workflow.status != Workflow.Status.PENDING:
            raise NotAllowed(
                f"Only a workflow that is still under way can be run now; this one is {state.label.lower()}."
            )
        if not transitions.make_due(workflow_id):
            raise NotAllowed("It is due already: a worker takes it as soon as one is free.")
        record(workflow_id, Event.Kind.RUN_NOW, user, step=workflow.current_step, reason=reason)


def cancel(workflow_id: int, *, user: User, reason: str, open_tasks: Collection[int] = ()) -> str:
    """End a workflow that is not at rest, undoing what it has done; say when, in a sentence.

    One that nobody holds is cancelled here and now. Of one that is running the request is stored, and its worker obeys
    it before the next step, or after the run; if that completes the workflow first, it is complete. `open_tasks` are
    those that the user has seen open (ids): if somebody has decided one of them since, that comes first, and the user
    is to look again.
    """
    require(user, CANCEL)
    if not reason.strip():
        raise NotAllowed("Say why: a cancellation needs a reason.")
    try:
        return _cancel_now(workflow_id, user=user, reason=reason, open_tasks=open_tasks)
    except Running:
        return _ask_to_cancel(workflow_id, user=user, reason=reason, open_tasks=open_tasks)


def _cancel_now(workflow_id: int, *, user: User, reason: str, open_tasks: Collection[int]) -> str:
    told = describe_engine_error(WorkflowCancelled(by=user.get_username(), reason=reason.strip()))
    with transaction.atomic(durable=True):
        workflow, state = take(workflow_id)
        _require_cancellable(workflow, state)
        _require_undecided(_locked(workflow_id, open_tasks))
        _close_open_attempt(workflow_id)
        compensates = compensation.fail_or_compensate(
            workflow, extra_columns={"cancelled_at": ClockTimestamp(), **last_error(told)}
        )
        inbox.close_cancellations(workflow_id)
        inbox.cancel_children(workflow_id, by=user.get_username(), reason=reason.strip())
        record(workflow_id, Event.Kind.CANCELLED, user, step=workflow.current_step, reason=reason)
        if compensates:
            history.record(workflow_id, Event.Kind.COMPENSATING)
    if compensates:
        return "It is cancelled; a worker now undoes what it has done."
    if workflow.parent_id is not None:
        inbox.try_notify_parent(workflow_id)
    return "It is cancelled."


def _close_open_attempt(workflow_id: int) -> None:
    """Close the attempt of a worker that was lost with its host, as the next worker would: there may never be one.

    We hold the row, so no worker does. A worker that has lost it, or its supervisor, may tell later how it ended.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH vanished AS (
                UPDATE workflows_attempt SET outcome = 'vanished', closed_at = clock_timestamp()
                 WHERE workflow_id = %s AND closed_at IS NULL RETURNING workflow_id, number)
            INSERT INTO workflows_event (workflow_id, kind, attempt)
            SELECT workflow_id, 'vanished', number FROM vanished
            """,
            [workflow_id],
        )


def _ask_to_cancel(workflow_id: int, *, user: User, reason: str, open_tasks: Collection[int]) -> str:
    """A worker holds the row: the request is stored and committed, and the workflow woken after that, as a decision is.

    Should the worker let go of the row just now, the one or the other of them sees the request (see `workflows.inbox`).
    """
    with transaction.atomic(durable=True):
        tasks = _locked(workflow_id, open_tasks)  # before the row is read: who holds both may be cancelling it just now
        workflow = Workflow.objects.with_state().defer("payload", "context").get(pk=workflow_id)
        _require_cancellable(workflow, State(workflow.state))
        _require_undecided(tasks)
        if asked := inbox.cancellation(workflow_id):
            raise NotAllowed(f"{asked.by} has asked for that already; its worker will see it.")
        inbox.store(
            source="console",
            dedupe_key=f"cancel:{uuid4()}",
            name=inbox.CANCEL,
            workflow_id=workflow_id,
            payload={"by": user.get_username(), "reason": reason.strip()},
        )
        compensation.close_questions(workflow_id)  # or somebody would answer one that nobody heeds
        record(workflow_id, Event.Kind.CANCEL_REQUESTED, user, step=workflow.current_step, reason=reason)
    inbox.try_wake(workflow_id=workflow_id)
    return "It is running: it is cancelled before its next step, unless that was the last one."


def _require_cancellable(workflow: Workflow, state: State) -> None:
    if workflow.status != Workflow.Status.PENDING:
        raise NotAllowed(
            f"Only a workflow that is still under way can be cancelled; this one is {state.label.lower()}."
        )
    if workflow.compensating:
        raise NotAllowed("It is being undone already, and ends with that.")


def _locked(workflow_id: int, open_tasks: Collection[int]) -> list[ManualTask]:
    """These tasks as they are, until the transaction ends: who would decide one waits for its outcome."""
    # No join: after a wait for the lock PostgreSQL reads this row anew, and what is joined to it not.
    tasks = ManualTask.objects.filter(workflow=workflow_id, pk__in=open_tasks).order_by("pk")
    return list(tasks.select_for_update(no_key=True))


def _require_undecided(tasks: Collection[ManualTask]) -> None:
    for task in tasks:
        if task.decided_by and task.state != ManualTask.State.TAKEN_BACK:
            raise NotAllowed(
                f"{task.decided_by.get_username()} has {task.state} “{task.question}” since you looked. Look again: it "
                "can be cancelled still."
            )

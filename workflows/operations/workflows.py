"""What people may do with a workflow: run it now, or cancel it."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from workflows import extension
from workflows.definition import definitions
from workflows.engine import compensation, undo_question
from workflows.engine.extension import Hooks
from workflows.engine.results import describe_engine_error, last_error
from workflows.errors import NotAllowed, WorkflowCancelled
from workflows.models import Event, ManualTask, State, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import PAUSED
from workflows.operations import payments
from workflows.operations.guards import (
    CANCEL,
    CANCEL_PAID,
    RUN_NOW,
    Actor,
    WorkflowBusy,
    after_commit,
    lock_workflow,
    record_event,
    require,
    require_reason,
    require_status,
    short_transaction,
    stated,
)
from workflows.operations.payments import Charges
from workflows.postgres.statements import execute
from workflows.signals import store, waking
from workflows.state import attempt_log, history, transitions

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def run_now(workflow_id: int, *, user: User, reason: str = "") -> None:
    """Make a workflow that is retrying or waiting due at once. Its count of failures stays."""
    require(user, RUN_NOW)
    with short_transaction():
        workflow, state = lock_workflow(workflow_id)
        require_status(workflow, state, Workflow.Status.PENDING, "a workflow that is still under way can be run now")
        if workflow.waiting_for == PAUSED:
            raise NotAllowed("It is paused: it runs when somebody resumes it.")
        if not transitions.make_due(workflow_id):
            raise NotAllowed("It is due already: a worker takes it as soon as one is free.")
        record_event(workflow_id, Event.Kind.RUN_NOW, user, step=workflow.current_step, reason=reason)


def cancel(
    workflow_id: int,
    *,
    user: Actor,
    reason: str,
    open_tasks: Collection[int] = (),
    charged: Collection[int] | None = None,
    unclear: Collection[int] = (),
) -> str:
    """Cancel a pending workflow, and undo its calls; return when that happens, in a sentence.

    A workflow that no worker has is cancelled at once. For a running one the request is stored; its worker obeys it
    before the next step, or after the run, unless the run completes the workflow. `open_tasks` are the ids of the tasks
    that the user has seen open: if another user has decided one since, the cancellation is refused. For a charge that
    stands, or may, the user needs the permission. `charged` and `unclear` are the charges that the user has seen: if
    the money has changed since, the cancellation is refused. They are None if the caller showed no money.
    """
    require(user, CANCEL)
    require_reason(reason, "a cancellation")
    seen = None if charged is None else Charges(sorted(charged), sorted(unclear))
    try:
        return _cancel_unless_busy(workflow_id, user=user, reason=reason, open_tasks=open_tasks, seen=seen)
    except WorkflowBusy:
        return _request_cancellation(workflow_id, user=user, reason=reason, open_tasks=open_tasks, seen=seen)


def _cancel_unless_busy(
    workflow_id: int, *, user: Actor, reason: str, open_tasks: Collection[int], seen: Charges | None
) -> str:
    error = describe_engine_error(WorkflowCancelled(by=user.get_username(), reason=stated(reason)))
    with short_transaction():
        workflow, state = lock_workflow(workflow_id)
        _require_cancellable(workflow, state, user)
        _require_charged_as_seen(workflow, seen)
        _require_undecided(_lock_tasks(workflow_id, open_tasks))
        close_open_attempt(workflow_id)
        compensates = compensation.fail_or_compensate(
            workflow, extra_columns={"cancelled_at": ClockTimestamp(), **last_error(error)}
        )
        if not compensates:
            Hooks.of(extension.of_workers()).tell(workflow, "failed")
        store.close_cancellations(workflow_id)
        store.cancel_children(workflow_id, by=user.get_username(), reason=stated(reason))
        told = {"step": workflow.current_step, "reason": reason}
        record_event(workflow_id, Event.Kind.CANCELLED, user, finishes=not compensates, **told)
        if compensates:
            history.record(workflow_id, Event.Kind.COMPENSATING)
    if compensates:
        return "It is cancelled; a worker now reverses what it has done."
    if workflow.parent_id is not None:
        after_commit(partial(store.try_notify_parent, workflow_id))
    return "It is cancelled."


def close_open_attempt(workflow_id: int) -> None:
    """Close the open attempt of a worker that died with its host, as the next worker would: there may be no next one.

    We have locked the row, so no worker has it. A worker that has lost it, or its supervisor, may later record its end.
    """
    execute(f"{attempt_log.closing_as_vanished('true')} SELECT FROM vanished", {"workflow_id": workflow_id})


def _request_cancellation(
    workflow_id: int, *, user: Actor, reason: str, open_tasks: Collection[int], seen: Charges | None
) -> str:
    """For a row that a worker has locked: store and commit the request, then wake the workflow, as for a decision.

    If the worker unlocks the row just now, either it or the wake-up sees the request (see `signals.store`).
    """
    with short_transaction():
        tasks = _lock_tasks(workflow_id, open_tasks)  # before the row is read: another user may lock both, to cancel it
        workflow = Workflow.objects.with_state().defer("payload", "context").get(pk=workflow_id)
        _require_cancellable(workflow, State(workflow.state), user)
        _require_charged_as_seen(workflow, seen)
        _require_undecided(tasks)
        if asked := store.cancellation(workflow_id):
            raise NotAllowed(f"{asked.by} has asked for that already; its worker will see it.")
        store.store(
            source="console",
            dedupe_key=f"cancel:{uuid4()}",
            name=store.CANCEL_SIGNAL,
            workflow_id=workflow_id,
            payload={"by": user.get_username(), "reason": stated(reason)},
        )
        compensation.close_questions(workflow_id)  # otherwise a user could answer a question whose answer is not used
        record_event(workflow_id, Event.Kind.CANCEL_REQUESTED, user, step=workflow.current_step, reason=reason)
    after_commit(partial(waking.try_wake, workflow_id))
    return "It is running: it is cancelled before its next step, unless that was the last one."


def _require_cancellable(workflow: Workflow, state: State, user: Actor) -> None:
    require_status(workflow, state, Workflow.Status.PENDING, "a workflow that is still under way can be cancelled")
    if undo_question.is_undecided(definitions().get(workflow.workflow_type), workflow):
        raise NotAllowed("It has failed already, and a person is asked whether it is to be reversed.")
    if workflow.compensating:
        raise NotAllowed("It is already being reversed, and fails then.")
    if refusal := why_not_cancel(workflow.pk, user):
        raise NotAllowed(refusal)


def _require_charged_as_seen(workflow: Workflow, seen: Charges | None) -> None:
    """Refuse if a worker has charged since the user saw the page: the user does not know what would be given back."""
    now = payments.held_by(workflow)
    if seen is not None and now != seen:
        money = payments.in_words(workflow, now)
        raise NotAllowed(f"The money has changed since you looked: {money}. Look again: it can be cancelled still.")


def why_not_cancel(workflow_id: int, user: Actor) -> str:
    """Why `user`, who may cancel, may not cancel this one; empty if they may.

    A worker that runs it may charge just after this check; the cancellation gives that back.
    """
    if user.has_perm(CANCEL_PAID) or not payments.may_have_been_charged(workflow_id):
        return ""
    return "It has been charged, or may have been: ask a support lead to cancel it."


def _lock_tasks(workflow_id: int, open_tasks: Collection[int]) -> list[ManualTask]:
    """Lock these tasks until the transaction ends: a user who decides one of them waits for its outcome."""
    # No join: after waiting for the lock PostgreSQL reads this row again, but not the joined rows.
    tasks = ManualTask.objects.filter(workflow=workflow_id, pk__in=open_tasks).order_by("pk")
    return list(tasks.select_for_update(no_key=True))


def _require_undecided(tasks: Collection[ManualTask]) -> None:
    for task in tasks:
        if task.decided_by and task.state != ManualTask.State.RETRACTED:
            raise NotAllowed(
                f"{task.decided_by.get_username()} has {task.state} “{task.question}” since you looked. Look again: it "
                "can be cancelled still."
            )

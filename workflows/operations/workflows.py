"""What people may do with a workflow: retry, run now, cancel."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from workflows import extension
from workflows.definition import definitions
from workflows.engine import compensation, reopening, undo_question
from workflows.engine.extension import Hooks
from workflows.engine.results import describe_engine_error, last_error
from workflows.errors import NotAllowed, WorkflowCancelled
from workflows.models import Confirmation, Correction, Event, ManualTask, State, Workflow
from workflows.models.clock import ClockTimestamp, microseconds
from workflows.models.workflow import PAUSED
from workflows.operations import family_retries, payments, two_people
from workflows.operations.guards import (
    CANCEL,
    CANCEL_PAID,
    RETRY,
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

TWO_PEOPLE = "It charges again what was refunded or retracted, and that takes two people: retry it on its own page."


def retry(
    workflow_id: int,
    *,
    user: User,
    reason: str = "",
    in_bulk: bool = False,
    seen: Collection[int] = (),
    second: User | None = None,
) -> str:
    """Start a failed or cancelled workflow again from its first step; return what happens before that, if anything.

    A question that failed it (rejected, or expired) is asked again, as is one that expired or was closed while nobody
    could decide. Every other question keeps its answer. Undone calls are made again, under a new key; those that a
    person left as they are stay done. `expires_after` starts again. Children that were cancelled with it are started
    first, by the workers (`operations.family_retries`).

    It goes before workflows that have not started, unless many are retried `in_bulk`: a thousand would delay everything
    new. `in_bulk` refuses a cancelled workflow, so that ticking a whole page cannot bring it back. To charge again what
    was refunded, the user needs the permission to cancel paid workflows; where that takes two people, it is only asked
    for, unless a `second` user has approved the bulk operation.

    `seen` is the end that the user was shown (`ended_at`): a workflow that has failed again since is refused. It is
    empty if the caller has shown none.
    """
    require(user, RETRY)
    with short_transaction():
        workflow = lock_for_retry(workflow_id, user, seen)
        if in_bulk and workflow.cancelled_at:
            raise NotAllowed("A cancelled workflow is retried on its own page.")
        if asked := family_retries.under_way(workflow_id):
            raise NotAllowed(str(asked))
        told: dict[str, Any] = {}
        if two_people.is_needed_to_retry(workflow_id):
            if in_bulk and second is None:
                raise NotAllowed(TWO_PEOPLE)
            sentence = two_people.ask(workflow_id, user=user, reason=reason, decision=two_people.RETRIED)
            to_confirm = two_people.open_of(workflow_id) if second else None
            if second is None or to_confirm is None:
                return sentence
            told = two_people.confirm(to_confirm, user=second)
        return retry_with_family(workflow, user, reason, begun=not in_bulk, **told)


def retry_with_family(workflow: Workflow, user: User, reason: str, *, begun: bool = True, **told: Any) -> str:
    """Retry a workflow that `lock_for_retry` has locked, after its children. Returns what happens before."""
    if workflow.cancelled_at and (sentence := family_retries.ask(workflow.pk, user=user, reason=reason)):
        return sentence
    _retry(workflow, user, reason, begun=begun, **told)
    return ""


def retry_alone(workflow_id: int, *, root: int, user: User, reason: str, seen: Collection[int]) -> None:
    """Retry a workflow, cancelled or not, whose children were retried before it (`operations.family_retries`).

    What was refunded since the retry of the `root` was asked for, nobody has confirmed.
    """
    require(user, RETRY)
    with short_transaction():
        workflow = lock_for_retry(workflow_id, user, seen)
        if two_people.is_needed_to_retry(workflow_id) and not two_people.has_confirmed_retry(root):
            raise NotAllowed(TWO_PEOPLE)
        _retry(workflow, user, reason)


def lock_for_retry(workflow_id: int, user: User, seen: Collection[int]) -> Workflow:
    """Lock a failed workflow that `user` may retry, and that has not failed again since they saw it."""
    workflow, state = lock_workflow(workflow_id)
    require_status(workflow, state, Workflow.Status.FAILED, "a failed workflow can be retried")
    if refusal := _why_not_this_user(workflow_id, user):
        raise NotAllowed(refusal)
    if not _is_seen(workflow, seen):
        raise NotAllowed("It has ended again since you looked at it.")
    return workflow


def _retry(workflow: Workflow, user: User, reason: str, *, begun: bool = True, **told: Any) -> None:
    start_again(workflow, begun=begun)
    record_event(workflow.pk, Event.Kind.RETRIED, user, step=workflow.current_step, reason=reason, **told)


def start_again(workflow: Workflow, *, begun: bool = True) -> None:
    """Start a FAILED workflow again from its first step, in an operation's transaction that has locked the row.

    Raises NotAllowed while somebody says that its call was made by hand: it would be made a second time.
    """
    if refusal := two_people.said_by_hand(workflow.pk):
        raise NotAllowed(refusal)
    Correction.objects.drop(workflow.pk)
    Confirmation.objects.drop(workflow.pk)
    reopening.reopen(workflow, begun=begun)
    store.close_cancellations(workflow.pk)
    store.restore_signals(workflow.pk)


def ended_at(workflow: Workflow) -> list[int]:
    """The time of a workflow's end in microseconds, which identifies it; empty if it has not finished."""
    return [microseconds(workflow.completed_at)] if workflow.completed_at else []


def _is_seen(workflow: Workflow, seen: Collection[int]) -> bool:
    return not seen or list(seen) == ended_at(workflow)


def why_not_retry(workflow_id: int, user: User) -> str:
    """Why `user`, who may retry, may not retry this one; empty if they may."""
    return str(family_retries.under_way(workflow_id) or "") or _why_not_this_user(workflow_id, user)


def _why_not_this_user(workflow_id: int, user: User) -> str:
    refused = (each.why_not_retry(workflow_id) for each in extension.installed())
    own = two_people.said_by_hand(workflow_id) or next(filter(None, refused), "")
    return own or why_not_charge_again(workflow_id, user)


def why_not_charge_again(workflow_id: int, user: User) -> str:
    """Why `user`, who may retry, may not charge again what was refunded; empty if they may."""
    if user.has_perm(CANCEL_PAID) or not payments.would_charge_again(workflow_id):
        return ""
    return "Its charge was refunded or retracted, and a retry charges again: ask a support lead to retry it."


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

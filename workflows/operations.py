"""What people may do. Each operation: guard, act, record, return.

The console and the commands change a workflow through these functions only, so that permission, state and history
are checked and written in one place. Each is a transaction of its own and refuses to run inside another (`durable`):
its refusals and its wake-up are about what has been committed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg.errors
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db import Error, OperationalError, connection, transaction
from django.db.models import Q
from django.db.models.functions import Now
from pydantic import ValidationError
from pydantic_core import to_json

from workflows import api_keys, compensation, history, inbox
from workflows.definition import definitions
from workflows.errors import NotAllowed, WorkflowCancelled
from workflows.executor import describe_own, last_error
from workflows.ledger import DOUBT_TASK
from workflows.models import ApiKey, Effect, Event, ManualTask, State, Wait, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.manual_task import ManualTaskQuerySet
from workflows.models.workflow import DUE_AT_ONCE
from workflows.scrub import faults

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)

RETRY = "workflows.retry_workflow"
RUN_NOW = "workflows.run_workflow_now"
CANCEL = "workflows.cancel_workflow"
DECIDE = "workflows.decide_manualtask"
REVOKE = "workflows.revoke_apikey"


def retry(workflow_id: int, *, user: User, reason: str = "") -> None:
    """Start a failed or cancelled workflow again from its first step.

    A question that failed it (rejected, or expired) is asked again, and so is one that expired, or was closed, while
    nobody could decide; an approval keeps its answer. What was undone is done again, under a new key; what a person
    has left as it is stays done. The time that it may take begins anew.
    """
    _require(user, RETRY)
    with transaction.atomic(durable=True):
        workflow, state = _take(workflow_id)
        if workflow.status != Workflow.Status.FAILED:
            raise NotAllowed(f"Only a failed workflow can be retried; this one is {state.label.lower()}.")
        definition = definitions().get(workflow.workflow_type)
        expires_after = definition.expires_after if definition else None
        Workflow.objects.filter(pk=workflow_id).update(
            status=Workflow.Status.PENDING,
            completed_at=None,
            cancelled_at=None,
            expires_at=ClockTimestamp() + expires_after if expires_after else None,
            retry_count=0,
            waiting_for="",
            wake_on=[],
            invisible_until=DUE_AT_ONCE,
        )
        tasks = ManualTask.objects.filter(workflow=workflow_id)
        tasks.filter(state=ManualTask.State.OPEN, expires_at__lte=ClockTimestamp()).update(
            state=ManualTask.State.EXPIRED
        )
        unanswerable = tasks.filter(state__in=[ManualTask.State.EXPIRED, ManualTask.State.CLOSED]).values("wait")
        asked = Wait.objects.filter(workflow=workflow_id)
        asked.filter(name__startswith=compensation.QUESTIONS).update(
            superseded=True
        )  # what was said of that is over with it
        asked.filter(Q(outcome="", pk__in=unanswerable) | Q(outcome__in=["rejected", "expired"])).update(
            superseded=True
        )
        kept = Effect.objects.filter(workflow=workflow_id, state=Effect.State.KEPT)
        kept.filter(result__isnull=True).update(state=Effect.State.UNKNOWN, undo_failures=0)
        kept.update(state=Effect.State.DONE, undo_failures=0)
        inbox.close_cancellations(workflow_id)
        _record(workflow_id, Event.Kind.RETRIED, user, step=workflow.current_step, reason=reason)


def run_now(workflow_id: int, *, user: User, reason: str = "") -> None:
    """Make a workflow due at once that is retrying or waiting. Its count of failures stays as it is."""
    _require(user, RUN_NOW)
    with transaction.atomic(durable=True):
        workflow, state = _take(workflow_id)
        if workflow.status != Workflow.Status.PENDING:
            raise NotAllowed(
                f"Only a workflow that is still under way can be run now; this one is {state.label.lower()}."
            )
        moved = Workflow.objects.filter(pk=workflow_id, invisible_until__gt=Now()).update(invisible_until=DUE_AT_ONCE)
        if not moved:
            raise NotAllowed("It is due already: a worker takes it as soon as one is free.")
        _record(workflow_id, Event.Kind.RUN_NOW, user, step=workflow.current_step, reason=reason)


def cancel(workflow_id: int, *, user: User, reason: str) -> str:
    """End a workflow that is not at rest, undoing what it has done; say when, in a sentence.

    One that nobody holds is cancelled here and now. Of one that is running the request is stored, and its worker obeys
    it before the next step, or after the run; if that completes the workflow first, it is complete.
    """
    _require(user, CANCEL)
    if not reason.strip():
        raise NotAllowed("Say why: a cancellation needs a reason.")
    try:
        return _cancel_now(workflow_id, user=user, reason=reason)
    except Running:
        return _ask_to_cancel(workflow_id, user=user, reason=reason)


def approve(task_id: int, *, user: User, reason: str = "", answer: dict[str, Any] | None = None) -> None:
    """Answer a manual task with yes, and wake its workflow. `answer` holds fields that the question asks for."""
    _decide(task_id, ManualTask.State.APPROVED, user=user, reason=reason, answer=answer)


def reject(task_id: int, *, user: User, reason: str) -> None:
    """Answer a manual task with no, and wake its workflow: an approval fails it, with this reason."""
    if not reason.strip():
        raise NotAllowed("Say why: a rejection needs a reason.")
    _decide(task_id, ManualTask.State.REJECTED, user=user, reason=reason)


def revoke(api_key_id: int, *, user: User, reason: str = "") -> None:
    """End an API key for good. What was sent with it stays."""
    _require(user, REVOKE)
    with transaction.atomic(durable=True):
        key = ApiKey.objects.filter(pk=api_key_id).first()
        if key is None:
            raise NotAllowed("There is no such API key.")
        if not api_keys.revoke(key):
            raise NotAllowed("It is revoked already.")
        LogEntry.objects.log_actions(user.pk, [key], CHANGE, f"Revoked. {reason.strip()}".strip(), single_object=True)


class Running(NotAllowed):
    """A worker holds the row."""


def _cancel_now(workflow_id: int, *, user: User, reason: str) -> str:
    told = describe_own(WorkflowCancelled(by=user.get_username(), reason=reason.strip()))
    with transaction.atomic(durable=True):
        workflow, state = _take(workflow_id)
        _require_cancellable(workflow, state)
        ending = compensation.ending(workflow)
        Workflow.objects.filter(pk=workflow_id).update(**ending, cancelled_at=ClockTimestamp(), **last_error(told))
        inbox.close_cancellations(workflow_id)
        _record(workflow_id, Event.Kind.CANCELLED, user, step=workflow.current_step, reason=reason)
        if "compensating" not in ending:
            return "It is cancelled."
        history.record(workflow_id, Event.Kind.COMPENSATING)
        return "It is cancelled; a worker now undoes what it has done."


def _ask_to_cancel(workflow_id: int, *, user: User, reason: str) -> str:
    """A worker holds the row: the request is stored and committed, and the workflow woken after that, as a decision is.

    Should the worker let go of the row just now, the one or the other of them sees the request (see `workflows.inbox`).
    """
    with transaction.atomic(durable=True):
        workflow = Workflow.objects.with_state().defer("payload", "context").get(pk=workflow_id)
        _require_cancellable(workflow, State(workflow.state))
        if asked := inbox.cancellation(workflow_id):
            raise NotAllowed(f"{asked.by} has asked for that already; its worker will see it.")
        inbox.store(
            source="console",
            dedupe_key=f"cancel:{uuid4()}",
            name=inbox.CANCEL,
            workflow_id=workflow_id,
            payload={"by": user.get_username(), "reason": reason.strip()},
        )
        _record(workflow_id, Event.Kind.CANCEL_REQUESTED, user, step=workflow.current_step, reason=reason)
    _wake(workflow_id, inbox.CANCEL)
    return "It is running: it is cancelled before its next step, unless that was the last one."


def _require_cancellable(workflow: Workflow, state: State) -> None:
    if workflow.status != Workflow.Status.PENDING:
        raise NotAllowed(
            f"Only a workflow that is still under way can be cancelled; this one is {state.label.lower()}."
        )
    if workflow.compensating:
        raise NotAllowed("It is being undone already, and ends with that.")


def _take(workflow_id: int) -> tuple[Workflow, State]:
    """Lock the row and read it, with its state. Never waits: a worker may hold it for as long as its run takes."""
    rows = Workflow.objects.with_state().defer("payload", "context")
    try:
        workflow = rows.select_for_update(nowait=True, no_key=True).filter(pk=workflow_id).first()
    except OperationalError as error:
        if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
            raise Running("It is running right now; try again in a moment.") from error
        raise
    if workflow is None:
        raise NotAllowed(f"There is no workflow {workflow_id}.")
    return workflow, State(workflow.state)


def _decide(
    task_id: int,
    decision: ManualTask.State,
    *,
    user: User,
    reason: str,
    answer: dict[str, Any] | None = None,
) -> None:
    """Decide a task, once: the update of its row is the arbiter between two people, and between them and its expiry.

    The workflow's row is not locked, for a worker may hold it: the decision is stored in the inbox and committed, and
    the workflow woken by a second statement after that (see `workflows.inbox`).
    """
    _require(user, DECIDE)
    with transaction.atomic(durable=True):
        task = ManualTask.objects.filter(pk=task_id)
        decided = _decidable(task).update(
            state=decision, decided_by=user, decided_at=ClockTimestamp(), reason=reason.strip()
        )
        if not decided:
            raise NotAllowed(_why_not(task.select_related("workflow", "decided_by").first()))
        told = task.select_related("workflow").get()
        if told.task_type == DOUBT_TASK and answer:
            _require_a_result(told.workflow, answer)
        approved = decision == ManualTask.State.APPROVED
        payload: dict[str, Any] = {"approved": approved, "reason": told.reason, "by": user.get_username()}
        if answer:
            payload["answer"] = answer
        inbox.store(
            source="console",
            dedupe_key=told.signal_name,
            name=told.signal_name,
            workflow_id=told.workflow_id,
            payload=payload,
        )
        kind = Event.Kind.APPROVED if approved else Event.Kind.REJECTED
        _record(told.workflow_id, kind, user, reason=reason, task=task_id)
    _wake(told.workflow_id, told.signal_name)


def _require_a_result(workflow: Workflow, answer: dict[str, Any]) -> None:
    """What a person says of a call must be what a step could have returned: else no run, and no undo, could use it."""
    if (definition := definitions().get(workflow.workflow_type)) is None:
        return
    if unknown := sorted(answer.keys() - definition.context_class.model_fields.keys()):
        raise NotAllowed(f"No step of {definition.name} returns {', '.join(unknown)}.")
    try:
        definition.context_class.model_validate_json(to_json(answer))
    except ValidationError as error:
        raise NotAllowed(f"No step of {definition.name} could have returned this: {faults(error)}.") from None


def _wake(workflow_id: int, signal_name: str) -> None:
    try:
        inbox.wake(workflow_id, signal_name)
    except Error as error:
        # The signal is stored, whatever happens now: no refusal, and no error. The sweep wakes the row.
        logger.warning("workflow %s has a signal and is not woken yet: %s", workflow_id, type(error).__name__)
        connection.close_if_unusable_or_obsolete()  # for the rest of the request


def _decidable(tasks: ManualTaskQuerySet) -> ManualTaskQuerySet:
    return tasks.open().filter(expires_at__gt=ClockTimestamp())


def _why_not(task: ManualTask | None) -> str:
    if task is None:
        return "There is no such task."
    if task.decided_by and task.decided_at:
        return f"{task.decided_by.get_username()} {task.state} it already, at {task.decided_at:%Y-%m-%d %H:%M:%S} UTC."
    if task.state == ManualTask.State.CLOSED:
        return "Nobody asks for that any more: its workflow has gone on without."
    if task.state == ManualTask.State.OPEN and task.workflow.status != Workflow.Status.PENDING:
        return f"Its workflow has ended; it is {task.workflow.status.lower()}."
    return f"It expired at {task.expires_at:%Y-%m-%d %H:%M:%S} UTC."


def _require(user: User, permission: str) -> None:
    if not user.has_perm(permission):
        raise PermissionDenied(permission)


def _record(workflow_id: int, kind: Event.Kind, user: User, *, step: str = "", reason: str, **detail: Any) -> None:
    """One line of history, in the operation's own transaction."""
    history.record(workflow_id, kind, step=step, actor=user.get_username(), reason=reason.strip(), **detail)

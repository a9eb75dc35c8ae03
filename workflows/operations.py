"""What people may do. Each operation: guard, act, record, return.

The console and the commands change a workflow through these functions only, so that permission, state and history
are checked and written in one place. Each is a transaction of its own and refuses to run inside another (`durable`):
its refusals and its wake-up are about what has been committed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import psycopg.errors
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import Exists, OuterRef, Q
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from workflows import answers, api_keys, compensation, history, inbox, taken_back, transitions
from workflows.definition import Step, WorkflowDefinition, definitions
from workflows.errors import NotAllowed, WorkflowCancelled
from workflows.executor import describe_own, last_error
from workflows.jsonb import Unstorable
from workflows.ledger import DOUBT_TASK, asked_about
from workflows.models import ApiKey, Effect, Event, ManualTask, Signal, State, Wait, Workflow, manual_task
from workflows.models.clock import ClockTimestamp
from workflows.models.manual_task import ManualTaskQuerySet
from workflows.scrub import faults, private_part, reference

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)

RETRY = "workflows.retry_workflow"
RUN_NOW = "workflows.run_workflow_now"
CANCEL = "workflows.cancel_workflow"
DECIDE = manual_task.DECIDE
REVOKE = "workflows.revoke_apikey"


def retry(workflow_id: int, *, user: User, reason: str = "") -> None:
    """Start a failed or cancelled workflow again from its first step.

    A question that failed it (rejected, or expired) is asked again, and so is one that expired, or was closed, while
    nobody could decide; every other keeps its answer. What was undone is done again, under a new key; what a person
    has left as it is stays done. The time that it may take begins anew. Children that were cancelled with it are
    started again, too.
    """
    _require(user, RETRY)
    _retry_children(workflow_id, user=user, reason=reason)
    with transaction.atomic(durable=True):
        workflow, state = _take(workflow_id)
        if workflow.status != Workflow.Status.FAILED:
            raise NotAllowed(f"Only a failed workflow can be retried; this one is {state.label.lower()}.")
        definition = definitions().get(workflow.workflow_type)
        transitions.reopen(workflow_id, expires_after=definition.expires_after if definition else None)
        _ask_anew(workflow_id)
        kept = Effect.objects.filter(workflow=workflow_id, state=Effect.State.KEPT)
        kept.filter(result__isnull=True).update(state=Effect.State.UNKNOWN, undo_failures=0)
        kept.update(state=Effect.State.DONE, undo_failures=0)
        inbox.close_cancellations(workflow_id)
        inbox.heed_again(workflow_id)
        _record(workflow_id, Event.Kind.RETRIED, user, step=workflow.current_step, reason=reason)


def _retry_children(workflow_id: int, *, user: User, reason: str) -> None:
    """Start the children again that were cancelled with their parent, or are about to be; each by itself.

    Before the parent: should we not get to its end, the parent can be retried once more.
    """
    if not Workflow.objects.filter(pk=workflow_id, status=Workflow.Status.FAILED, cancelled_at__isnull=False).exists():
        return
    inbox.spare_children(workflow_id)
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
    of_undos = ManualTask.objects.filter(workflow=workflow_id, task_type=compensation.TASK_TYPE).values("wait")
    over = Q(kind=Wait.Kind.SIGNAL, outcome="", deadline__lte=ClockTimestamp())
    joins = Q(kind=Wait.Kind.CHILDREN) & ~Q(outcome="expired")
    Wait.objects.filter(workflow=workflow_id).filter(
        over | Q(outcome="", pk__in=closed) | Q(pk__in=of_undos) | joins
    ).update(superseded=True)


def run_now(workflow_id: int, *, user: User, reason: str = "") -> None:
    """Make a workflow due at once that is retrying or waiting. Its count of failures stays as it is."""
    _require(user, RUN_NOW)
    with transaction.atomic(durable=True):
        workflow, state = _take(workflow_id)
        if workflow.status != Workflow.Status.PENDING:
            raise NotAllowed(
                f"Only a workflow that is still under way can be run now; this one is {state.label.lower()}."
            )
        if not transitions.make_due(workflow_id):
            raise NotAllowed("It is due already: a worker takes it as soon as one is free.")
        _record(workflow_id, Event.Kind.RUN_NOW, user, step=workflow.current_step, reason=reason)


def cancel(workflow_id: int, *, user: User, reason: str, open_tasks: Collection[int] = ()) -> str:
    """End a workflow that is not at rest, undoing what it has done; say when, in a sentence.

    One that nobody holds is cancelled here and now. Of one that is running the request is stored, and its worker obeys
    it before the next step, or after the run; if that completes the workflow first, it is complete. `open_tasks` are
    those that the user has seen open (ids): if somebody has decided one of them since, that comes first, and the user
    is to look again.
    """
    _require(user, CANCEL)
    if not reason.strip():
        raise NotAllowed("Say why: a cancellation needs a reason.")
    try:
        return _cancel_now(workflow_id, user=user, reason=reason, open_tasks=open_tasks)
    except Running:
        return _ask_to_cancel(workflow_id, user=user, reason=reason, open_tasks=open_tasks)


def claim_task(task_id: int, *, user: User, reason: str = "") -> None:
    """Make an open task the user's own, if nobody has claimed it who can still decide it.

    The others then leave it to them.
    """
    _require(user, DECIDE)
    with transaction.atomic(durable=True):
        task = ManualTask.objects.filter(pk=task_id)
        claimed = _decidable(task, user).free().update(assignee=user, claimed_at=ClockTimestamp())
        told = _task(task_id)
        if not claimed:
            raise NotAllowed(why_not_claim(told, user) or CHANGED)
        _record(told.workflow_id, Event.Kind.TASK_CLAIMED, user, reason=reason, task=task_id)


def release_task(task_id: int, *, user: User, reason: str = "") -> None:
    """Give a claimed task back to all who may decide it: one's own, or of who can no longer; a superuser anybody's."""
    _require(user, DECIDE)
    with transaction.atomic(durable=True):
        task = ManualTask.objects.filter(pk=task_id)
        claimed = task.exclude(assignee=None)
        if not user.is_superuser:
            claimed = task.filter(assignee=user) | _theirs(claimed, user).free()
        released = _undecided(claimed).update(assignee=None, claimed_at=None)
        told = _task(task_id)
        if not released:
            raise NotAllowed(why_not_release(told, user) or CHANGED)
        _record(told.workflow_id, Event.Kind.TASK_RELEASED, user, reason=reason, task=task_id)


def approve(task_id: int, *, user: User, reason: str = "", answer: Mapping[str, Any] | None = None) -> None:
    """Answer a manual task with yes, and wake its workflow. `answer` holds fields that the question asks for."""
    _decide(task_id, ManualTask.State.APPROVED, user=user, reason=reason, answer=answer)


def reject(task_id: int, *, user: User, reason: str) -> None:
    """Answer a manual task with no, and wake its workflow: an approval fails it, with this reason."""
    if not reason.strip():
        raise NotAllowed("Say why: a rejection needs a reason.")
    _decide(task_id, ManualTask.State.REJECTED, user=user, reason=reason)


def take_back(task_id: int, *, user: User, reason: str) -> str:
    """Take back an answer about a call, or about its undo, that nothing has built on; say what happens, in a sentence.

    The workflow then asks anew (see `workflows.taken_back`).
    """
    _require(user, DECIDE)
    if not reason.strip():
        raise NotAllowed("Say why: what is taken back needs a reason.")
    with transaction.atomic(durable=True):
        workflow_id = _task(task_id).workflow_id
        _take(workflow_id)
        # A worker that has lost the row may be writing to one of them just now: then what it writes is read below.
        list(Effect.objects.filter(workflow=workflow_id).order_by("pk").select_for_update(no_key=True).values("pk"))
        task = _task(task_id)
        if why_not := _why_not_theirs(task, user) or taken_back.why_not(task):
            raise NotAllowed(why_not)
        answer = taken_back.read(task)
        ManualTask.objects.filter(pk=task_id).update(state=ManualTask.State.TAKEN_BACK)
        assert task.decided_by
        said = {"step": answer.effect.step, "answered_by": task.decided_by.get_username(), **_was_said(task)}
        _record(workflow_id, Event.Kind.TAKEN_BACK, user, reason=reason, task=task_id, **said)
        return taken_back.take_back(answer)


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


def _cancel_now(workflow_id: int, *, user: User, reason: str, open_tasks: Collection[int]) -> str:
    told = describe_own(WorkflowCancelled(by=user.get_username(), reason=reason.strip()))
    with transaction.atomic(durable=True):
        workflow, state = _take(workflow_id)
        _require_cancellable(workflow, state)
        _require_undecided(_locked(workflow_id, open_tasks))
        _close_open_attempt(workflow_id)
        compensates = compensation.fail(workflow, beside={"cancelled_at": ClockTimestamp(), **last_error(told)})
        inbox.close_cancellations(workflow_id)
        inbox.cancel_children(workflow_id, by=user.get_username(), reason=reason.strip())
        _record(workflow_id, Event.Kind.CANCELLED, user, step=workflow.current_step, reason=reason)
        if compensates:
            history.record(workflow_id, Event.Kind.COMPENSATING)
    if compensates:
        return "It is cancelled; a worker now undoes what it has done."
    if workflow.parent_id is not None:
        inbox.tell_parent_soon(workflow_id)
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
        _record(workflow_id, Event.Kind.CANCEL_REQUESTED, user, step=workflow.current_step, reason=reason)
    inbox.wake_soon(workflow_id=workflow_id)
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


# --- Manual tasks -----------------------------------------------------------------------------------


def _decide(
    task_id: int,
    decision: ManualTask.State,
    *,
    user: User,
    reason: str,
    answer: Mapping[str, Any] | None = None,
) -> None:
    """Decide a task, once: the update of its row is the arbiter between two people, and between them and its expiry.

    The workflow's row is not locked, for a worker may hold it: the decision is stored in the inbox and committed, and
    the workflow woken by a second statement after that (see `workflows.inbox`).
    """
    _require(user, DECIDE)
    with _four_eyes_told(), transaction.atomic(durable=True):
        task = ManualTask.objects.filter(pk=task_id)
        free = _decidable(task, user).free_for(user)
        decided = free.update(state=decision, decided_by=user, decided_at=ClockTimestamp(), reason=reason.strip())
        told = _task(task_id)
        if not decided:
            raise NotAllowed(why_not_decide(told, user) or CHANGED)
        _require_heeded(told)
        if told.task_type == compensation.TASK_TYPE and not told.reason:
            raise NotAllowed("Say why: what is dealt with by hand needs a reason.")
        approved = decision == ManualTask.State.APPROVED
        payload: dict[str, Any] = {"approved": approved, "reason": told.reason, "by": user.get_username()}
        if approved and (checked := _checked(told, answer)) is not None:
            payload["answer"] = checked
        inbox.store(
            source="console",
            dedupe_key=told.signal_name,
            name=told.signal_name,
            workflow_id=told.workflow_id,
            payload=payload,
        )
        kind = Event.Kind.APPROVED if approved else Event.Kind.REJECTED
        _record(told.workflow_id, kind, user, reason=reason, task=task_id, **_said(told, payload.get("answer")))
    inbox.wake_soon(workflow_id=told.workflow_id)


def _require_heeded(task: ManualTask) -> None:
    """Nobody has asked for the workflow to be cancelled: its parent with it, or before the question was asked."""
    if task.task_type in compensation.ASKED_ALL_THE_SAME:
        return
    if asked := inbox.cancellation(task.workflow_id):
        raise NotAllowed(f"{asked.by} has asked for its workflow to be cancelled: no answer is heeded any more.")


@contextmanager
def _four_eyes_told() -> Iterator[None]:
    """The database has the last word on four eyes; what it says is told in ours.

    The update looks for itself first: PostgreSQL's refusal quotes the whole row, facts and all, in its log.
    """
    try:
        yield
    except IntegrityError as error:
        cause = error.__cause__
        if isinstance(cause, psycopg.Error) and cause.diag.constraint_name == FOUR_EYES:
            raise NotAllowed(OWN_REQUEST) from None
        raise


def answer_model(task: ManualTask) -> type[BaseModel] | None:
    """What a yes to this question fills in; None where yes is enough, or where the step does not say what it returns.

    Raises NotAllowed when this release cannot tell.
    """
    if task.task_type == DOUBT_TASK:
        definition, step = _in_doubt(task)
        return None if step.returns is None else answers.result_model(definition.context_class, step.returns)
    if task.task_type == compensation.TASK_TYPE:
        return answers.DealtWith
    if not task.answer_model:
        return None
    try:
        return answers.model_at(task.answer_model)
    except answers.NoSuchModel:
        raise NotAllowed(
            f"This release does not have what the answer is checked by ({task.answer_model}): try again with the "
            "release that asked."
        ) from None


def _in_doubt(task: ManualTask) -> tuple[WorkflowDefinition, Step]:
    """The step whose call is in doubt; of one that has left the list no more than the name."""
    if (definition := definitions().get(task.workflow.workflow_type)) is None:
        raise NotAllowed(
            f"This release does not know the type {task.workflow.workflow_type}, nor what its calls return: try again "
            "with the release that asked."
        )
    return definition, definition.step_that_was(asked_about(task.wait.name)[0])


def _checked(task: ManualTask, answer: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What an approval says besides yes, as the question asks for it."""
    model = answer_model(task)
    if task.task_type == DOUBT_TASK:
        return _require_a_result(task, model, answer)
    if model is None:
        return dict(answer) if answer else None
    if answer is None:
        raise NotAllowed(f"A yes is not enough: the answer has fields ({', '.join(model.model_fields)}).")
    return _fitting(model, answer)


def _fitting(model: type[BaseModel], answer: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return answers.validated(model, answer)
    except ValidationError as error:
        raise NotAllowed(f"That is no answer to this question: {faults(error)}.") from None
    except Unstorable as error:
        raise NotAllowed(f"That answer cannot be kept: {error}") from None
    except answers.CheckFailed as error:
        raise NotAllowed(str(error)) from None


def _require_a_result(
    task: ManualTask, model: type[BaseModel] | None, answer: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What a person says of a call must be what its step returns, in full: else no run, and no undo, could use it.

    Whoever asks for it, the console or a script: nothing else checks what is recorded of a call.
    """
    definition, step = _in_doubt(task)
    known = (model or definition.context_class).model_fields
    if not isinstance(answer, Mapping):
        fields = ", ".join(known) if model and known else "an object, {} if that was nothing"
        raise NotAllowed(f"A yes is not enough: say what {step.name} returned ({fields}).")
    if unknown := ", ".join(sorted(answer.keys() - known.keys())):
        raise NotAllowed(
            f"{step.name} does not return {unknown}." if model else f"No step of {definition.name} returns {unknown}."
        )
    if model and (empty := ", ".join(name for name in known if _is_empty(answer.get(name)))):
        raise NotAllowed(f"If it happened, {step.name} returned these too: {empty}.")
    try:
        result = answers.in_json(answer) if model is None else _fitting(model, answer)
        definition.context_class.model_validate_json(to_json(result))
    except Unstorable as error:
        raise NotAllowed(f"That answer cannot be kept: {error}") from None
    except ValidationError as error:
        raise NotAllowed(f"No step of {definition.name} could have returned this: {faults(error)}.") from None
    return result


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _said(task: ManualTask, answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """What was said of a call, or of an undo, for the history; `answer` is None when it was a no.

    Of the values only what is nobody's data: the choices that a model offers, and what reads like a reference.
    """
    if task.task_type not in compensation.ASKED_ALL_THE_SAME:
        return {}
    of_undo, (step, _) = task.task_type == compensation.TASK_TYPE, asked_about(task.wait.name)
    if answer is None:
        return {"step": step, "said": "try_again" if of_undo else "did_not_happen"}
    definition = definitions().get(task.workflow.workflow_type)
    payload = Workflow.objects.values_list("payload", flat=True).get(pk=task.workflow_id)
    private = private_part(payload, definition.public_fields if definition else ())
    if of_undo and answer["kept"]:
        return {"step": step, "said": "left_as_it_is"}
    if of_undo:
        return {"step": step, "said": "undone_by_hand", "reference": reference(answer["reference"], private)}
    known = definition.context_class.model_fields if definition else {}
    fields = {
        name: str(value) if answers.is_choice(known[name]) else reference(value, private)
        for name, value in answer.items()
    }
    return {"step": step, "said": "happened", "fields": fields}


def _was_said(task: ManualTask) -> dict[str, Any]:
    """In the words of the history, which has them from the answer."""
    decided = Event.objects.filter(workflow=task.workflow_id, detail__task=task.pk, detail__has_key="said")
    event = decided.order_by("id").last()
    return {"said": event.detail["said"]} if event else {}


def why_not_claim(task: ManualTask, user: User) -> str:
    """Why `user` cannot claim it, in a sentence; empty if nothing speaks against it."""
    if not (over := _why_over(task)) and task.assignee == user:
        return "It is yours already."
    return over or _why_not_theirs(task, user) or _why_taken(task, user)


def why_not_release(task: ManualTask, user: User) -> str:
    """Why `user` cannot give it back, in a sentence; empty if nothing speaks against it."""
    if not (over := _why_over(task)) and task.assignee is None:
        return "Nobody has claimed it."
    if over or user.is_superuser or task.assignee == user:
        return over
    return _why_taken(task, user) or _why_not_theirs(task, user)


def why_not_decide(task: ManualTask, user: User) -> str:
    """Why `user` cannot decide it, in a sentence; empty if nothing speaks against it."""
    return _why_over(task) or _why_not_theirs(task, user) or _why_taken(task, user)


# What happened between an update that changed nothing and the look at why.
CHANGED = "Somebody has changed it just now: look at it again."
OWN_REQUEST = "You have requested this yourself: it takes four eyes, and somebody else's decision."
FOUR_EYES = "manual_task_four_eyes"


def _task(task_id: int) -> ManualTask:
    rows = ManualTask.objects.by_the_clock().with_claims().select_related("workflow", "wait", "assignee", "decided_by")
    if task := rows.defer("workflow__payload", "workflow__context", "wait__result").filter(pk=task_id).first():
        return task
    raise NotAllowed("There is no such task.")


def _undecided(tasks: ManualTaskQuerySet) -> ManualTaskQuerySet:
    return tasks.open().filter(expires_at__gt=ClockTimestamp())


def _decidable(tasks: ManualTaskQuerySet, user: User) -> ManualTaskQuerySet:
    """Those that `user` may decide unless somebody else has claimed them. A part of the update: that is the arbiter."""
    return _theirs(_undecided(tasks), user)


def _theirs(tasks: ManualTaskQuerySet, user: User) -> ManualTaskQuerySet:
    return tasks.for_members(user).for_other_eyes(user)


def _why_over(task: ManualTask) -> str:
    if task.state == ManualTask.State.TAKEN_BACK:
        return "Its answer was taken back; the workflow asks anew."
    if task.decided_by and task.decided_at:
        return f"{task.decided_by.get_username()} {task.state} it already, at {task.decided_at:%Y-%m-%d %H:%M:%S} UTC."
    if task.state != ManualTask.State.EXPIRED and task.workflow.status != Workflow.Status.PENDING:
        return f"Its workflow has ended; it is {task.workflow.status.lower()}."
    if task.state == ManualTask.State.CLOSED:
        return "Nobody asks for that any more: its workflow has gone on without."
    if task.state == ManualTask.State.EXPIRED or task.is_over:
        return f"It expired at {task.expires_at:%Y-%m-%d %H:%M:%S} UTC."
    return ""


def _why_not_theirs(task: ManualTask, user: User) -> str:
    if task.team and not (user.is_superuser or user.groups.filter(name=task.team).exists()):
        return f"It is for the team {task.team}, and you are not in it."
    return OWN_REQUEST if task.four_eyes and task.requested_by_id == user.pk else ""


def _why_taken(task: ManualTask, user: User) -> str:
    if task.assignee is None or task.assignee == user or not task.is_held:
        return ""
    name = task.assignee.get_username()
    if task.claimed_at:
        return f"{name} has claimed it, at {task.claimed_at:%Y-%m-%d %H:%M:%S} UTC."
    return f"It is assigned to {name}."


# --- What every operation does ----------------------------------------------------------------------


def _require(user: User, permission: str) -> None:
    if not user.has_perm(permission):
        raise PermissionDenied(permission)


def _record(workflow_id: int, kind: Event.Kind, user: User, *, step: str = "", reason: str, **detail: Any) -> None:
    """One line of history, in the operation's own transaction."""
    history.record(workflow_id, kind, step=step, actor=user.get_username(), reason=reason.strip(), **detail)

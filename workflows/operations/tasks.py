"""What people may do with manual tasks: claim, assign and release, approve and reject, retract an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError

from workflows.engine import compensation, undo_doubts
from workflows.errors import NotAllowed
from workflows.models import Confirmation, Effect, Event, ManualTask
from workflows.models.clock import ClockTimestamp
from workflows.models.manual_task import ManualTaskQuerySet, able_to_decide
from workflows.operations import answers, retracting, two_people
from workflows.operations.guards import (
    ACKNOWLEDGE,
    ASSIGN,
    after_commit,
    lock_workflow,
    record_event,
    require,
    require_reason,
    short_transaction,
    stated,
)
from workflows.operations.task_rules import (
    CHANGED,
    MAY_DECIDE,
    OWN_REQUEST,
    allowed_for,
    decidable_by,
    instead_of,
    lock_task,
    read_task,
    undecided,
    who_has_it,
    why_not_assign,
    why_not_claim,
    why_not_decide,
    why_not_release,
    why_not_retract,
    why_not_retry_instead,
    why_over,
)
from workflows.postgres.sqlstates import violates
from workflows.signals import store, waking

if TYPE_CHECKING:
    from django.contrib.auth.models import User

_UNCLAIMED: dict[str, Any] = {"assignee": None, "claimed_at": None, "lead_asked_at": None}


def claim_task(task_id: int, *, user: User, reason: str = "") -> None:
    """Make an open task the user's own: no other user can decide it. Refused if another able user has claimed it."""
    require(user, *MAY_DECIDE)
    with short_transaction():
        row, instead = ManualTask.objects.filter(pk=task_id), instead_of(read_task(task_id), user)
        free = decidable_by(row, user).free_for(user).exclude(assignee=user)
        claimed = free.update(assignee=user, claimed_at=ClockTimestamp(), lead_asked_at=None)
        task = read_task(task_id)
        if not claimed:
            raise NotAllowed(why_not_claim(task, user) or CHANGED)
        record_event(task.workflow_id, Event.Kind.TASK_CLAIMED, user, reason=reason, task=task_id, **instead)


def assign(task_id: int, *, user: User, to: int, seen: list[int], reason: str = "") -> str:
    """Assign an open task to a colleague who may decide it; return a sentence that says so. `reason` is a note to them.

    A user with the permission to assign may assign any task; others, free tasks and their own. `seen` is the assignee
    that the user was shown, if any: a later change is not overwritten.
    """
    require(user, ASSIGN, *MAY_DECIDE)
    with short_transaction():
        lock_task(task_id)
        task = read_task(task_id)
        if why_not := why_not_assign(task, user):
            raise NotAllowed(why_not)
        if seen != [task.assignee_id] * (task.assignee_id is not None):
            raise NotAllowed(who_has_it(task))
        colleague = able_to_decide(task).defer("password").filter(pk=to).first()
        if colleague is None:
            raise NotAllowed("This user cannot decide it: choose somebody else.")
        name = colleague.get_username()
        if colleague == task.assignee:
            raise NotAllowed(f"It is assigned to {name} already.")
        ManualTask.objects.filter(pk=task_id).update(assignee=colleague, claimed_at=None, lead_asked_at=None)
        detail: dict[str, Any] = {"task": task_id, "to": name, **instead_of(task, user)}
        record_event(task.workflow_id, Event.Kind.TASK_ASSIGNED, user, reason=reason, **detail)
        stands_in = read_task(task_id).stand_in
    return f"It is assigned to {name}{f', who is away: {stands_in} stands in' if stands_in else ''}."


def ask_lead(task_id: int, *, user: User, reason: str) -> None:
    """Ask a support lead to decide an open task, or to assign it. `reason` is a note to them."""
    require(user, ACKNOWLEDGE, *MAY_DECIDE)
    require_reason(reason, "a lead")
    with short_transaction():
        asked = undecided(ManualTask.objects.filter(pk=task_id)).update(lead_asked_at=ClockTimestamp())
        task = read_task(task_id)
        if not asked:
            raise NotAllowed(why_over(task) or CHANGED)
        record_event(task.workflow_id, Event.Kind.LEAD_ASKED, user, reason=reason, task=task_id)


def release_task(task_id: int, *, user: User, reason: str = "") -> None:
    """Give a claimed task back to all users who may decide it.

    A user may release their own task, and one whose assignee can no longer decide it; with the permission to assign,
    any task.
    """
    require(user, ASSIGN, *MAY_DECIDE)
    with short_transaction():
        row = ManualTask.objects.filter(pk=task_id)
        claimed, instead = row.exclude(assignee=None), instead_of(read_task(task_id), user)
        if not user.has_perm(ASSIGN):
            claimed = row.filter(assignee=user) | allowed_for(claimed, user).free_for(user)
        released = undecided(claimed).update(assignee=None, claimed_at=None)
        task = read_task(task_id)
        if not released:
            raise NotAllowed(why_not_release(task, user) or CHANGED)
        record_event(task.workflow_id, Event.Kind.TASK_RELEASED, user, reason=reason, task=task_id, **instead)


def approve(task_id: int, *, user: User, reason: str = "", answer: Mapping[str, Any] | None = None) -> str:
    """Answer a manual task with yes, and wake its workflow. `answer` has the fields that the question asks for.

    Returns a sentence if a second person has to confirm it first (`operations.two_people`); else nothing.
    """
    return decide(task_id, ManualTask.State.APPROVED, user=user, reason=reason, answer=answer)


def reject(task_id: int, *, user: User, reason: str) -> str:
    """Answer a manual task with no, and wake its workflow. A refused approval fails it, with this reason.

    Returns a sentence if a second person has to confirm it first; else nothing.
    """
    require_reason(reason, "a rejection")
    return decide(task_id, ManualTask.State.REJECTED, user=user, reason=reason)


def retract(task_id: int, *, user: User, reason: str) -> str:
    """Retract an answer about a call or its undo (`operations.retracting`); return a sentence about what happens."""
    require(user, *MAY_DECIDE)
    require_reason(reason, "what is retracted")
    with short_transaction():
        workflow_id = read_task(task_id).workflow_id
        lock_workflow(workflow_id)
        # A worker that has lost the row may be writing to one of these effects. Its write is then visible below.
        list(Effect.objects.filter(workflow=workflow_id).order_by("pk").select_for_update(no_key=True).values("pk"))
        task = read_task(task_id)
        if why_not := why_not_retract(task, user) or retracting.why_not(task):
            raise NotAllowed(why_not)
        ManualTask.objects.filter(pk=task_id).update(state=ManualTask.State.RETRACTED)
        assert task.decided_by
        detail = {"step": retracting.step_of(task), "answered_by": task.decided_by.get_username()}
        detail |= answers.recorded_answer(task)
        record_event(workflow_id, Event.Kind.RETRACTED, user, reason=reason, task=task_id, **detail)
        return retracting.retract(task)


def decidable(user: User) -> ManualTaskQuerySet:
    """The open tasks that `user` may decide now: within their permissions and teams, and not claimed by others."""
    if not any(map(user.has_perm, MAY_DECIDE)):
        return ManualTask.objects.none()
    return decidable_by(ManualTask.objects.all(), user).free_for(user)


# --- Deciding -----------------------------------------------------------------------------------------


def decide(
    task_id: int,
    decision: ManualTask.State,
    *,
    user: User,
    reason: str,
    answer: Mapping[str, Any] | None = None,
    asked: Confirmation | None = None,
    note: str = "",
    hold: Callable[[ManualTask, Mapping[str, Any]], bool] = lambda task, payload: False,
) -> str:
    """Decide a task, once: the update of its row decides a race between two people, or with its expiry.

    The workflow's row is not locked, because a worker may have it: the decision is stored as a signal and committed,
    and a second statement then wakes the workflow. An answer that takes two people only asks for the second, unless it
    is `asked`, and this user is the second. Returns a sentence about that, else nothing. `hold` may keep back the
    signal's payload, and says whether it did (`operations.undoing`).
    """
    require(user, *MAY_DECIDE)
    with _four_eyes_as_refusal(), short_transaction():
        row = ManualTask.objects.filter(pk=task_id)
        free = decidable_by(row, user).free_for(user)
        decided = free.update(state=decision, decided_by=user, decided_at=ClockTimestamp(), reason=stated(reason))
        task = read_task(task_id)
        if not decided:
            raise NotAllowed(why_not_decide(task, user) or CHANGED)
        _require_not_cancelled(task)
        if task.task_type == undo_doubts.UNDO_TASK_TYPE:
            require_reason(task.reason, "what is dealt with by hand")
        approved = decision == ManualTask.State.APPROVED
        payload: dict[str, Any] = {"approved": approved, "reason": task.reason, "by": user.get_username()}
        if approved and (checked := answers.checked(task, answer)) is not None:
            if checked.get("retry") and (refusal := why_not_retry_instead(task, user)):
                raise NotAllowed(refusal)
            payload["answer"] = checked
        detail = answers.for_history(task, payload.get("answer")) | instead_of(task, user)
        if asked:
            detail |= two_people.confirm(asked, user=user) | ({"note": note} if note else {})
        elif two_people.is_needed(task, decision, payload.get("answer")):
            # The update above has decided the race; nobody has seen it. Free again, for the second person.
            row.update(state=ManualTask.State.OPEN, decided_by=None, decided_at=None, reason="", **_UNCLAIMED)
            said = {"decision": decision, "answer": payload.get("answer"), "task": task_id, **detail}
            return two_people.ask(task.workflow_id, user=user, reason=reason, **said)
        elif two_people.takes_two(task.workflow.workflow_type):
            Confirmation.objects.drop(task.workflow_id)
        if not hold(task, payload):
            store.store(
                source="console",
                dedupe_key=task.signal_name,
                name=task.signal_name,
                workflow_id=task.workflow_id,
                payload=payload,
            )
        kind = Event.Kind.APPROVED if approved else Event.Kind.REJECTED
        reason = answers.reason_for_history(task, reason)
        record_event(task.workflow_id, kind, user, reason=reason, task=task_id, **detail)
    after_commit(partial(waking.try_wake, task.workflow_id))
    return ""


def _require_not_cancelled(task: ManualTask) -> None:
    """Refuse if a cancellation was requested, with the parent or before the question was asked."""
    if task.task_type in compensation.KEPT_ON_CANCEL:
        return
    if asked := store.cancellation(task.workflow_id):
        raise NotAllowed(f"{asked.by} has asked to cancel the workflow: it takes no more answers.")


@contextmanager
def _four_eyes_as_refusal() -> Iterator[None]:
    """Turn a violation of the four-eyes constraint, which has the last word, into NotAllowed.

    The update checks the rule first, because PostgreSQL's refusal would log the whole row, with its facts.
    """
    try:
        yield
    except IntegrityError as error:
        if violates(error, "manual_task_four_eyes"):
            raise NotAllowed(OWN_REQUEST) from None
        raise

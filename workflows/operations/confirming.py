"""What a second person may do: confirm what a colleague has said, or not; and review what a lead confirmed alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from workflows.errors import NotAllowed
from workflows.models import Confirmation, ManualTask
from workflows.operations import answers, tasks, two_people
from workflows.operations.guards import (
    CANCEL_PAID,
    RETRY,
    VIEW_AUDIT,
    lock_workflow,
    require,
    require_reason,
    short_transaction,
    stated,
)
from workflows.operations.retrying import lock_for_retry, retry_with_family
from workflows.operations.task_rules import MAY_DECIDE, lock_task, read_task, why_not_decide

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def confirm(task_id: int, *, user: User, seen: Collection[int], reason: str) -> None:
    """Confirm the answer that a colleague has given to a task: it is decided, and its workflow woken.

    `seen` is the confirmation that the user was shown. `reason` says what they have seen.
    """
    require(user, *MAY_DECIDE)
    require_reason(reason, "a confirmation")
    asked = two_people.find(seen, read_task(task_id).workflow_id, task_id)
    tasks.decide(
        task_id,
        ManualTask.State(asked.decision),
        user=user,
        reason=asked.reason,
        answer=asked.answer,
        asked=asked,
        note=stated(reason),
    )


def do_not_confirm(task_id: int, *, user: User, seen: Collection[int], reason: str) -> str:
    """Withdraw one's own answer before it is confirmed, or do not confirm a colleague's. The task stays open."""
    require(user, *MAY_DECIDE)
    require_reason(reason, "that")
    with short_transaction():
        lock_task(task_id)
        task = read_task(task_id)
        asked = two_people.find(seen, task.workflow_id, task_id)
        if asked.asked_by_id != user.pk and (refusal := why_not_decide(task, user)):
            raise NotAllowed(refusal)
        return two_people.close(asked, user=user, reason=reason, task=task_id, **said(task, asked))


def said(task: ManualTask, asked: Confirmation) -> dict[str, Any]:
    """What the history says of an answer that waits for a second person."""
    return answers.for_history(task, asked.answer if asked.decision == ManualTask.State.APPROVED else None)


def confirm_retry(workflow_id: int, *, user: User, seen: Collection[int], reason: str) -> str:
    """Retry a workflow for which a colleague has asked; return what happens before that, if anything.

    `seen` is the confirmation that the user was shown. `reason` says what they have seen.
    """
    require(user, RETRY)
    require_reason(reason, "a confirmation")
    with short_transaction():
        workflow = lock_for_retry(workflow_id, user, ())
        asked = two_people.find(seen, workflow_id)
        told = two_people.confirm(asked, user=user) | {"note": stated(reason)}
        return retry_with_family(workflow, user, asked.reason, **told)


def do_not_confirm_retry(workflow_id: int, *, user: User, seen: Collection[int], reason: str) -> str:
    """Withdraw one's own retry before it is confirmed, or do not confirm a colleague's. The workflow stays failed."""
    require(user, RETRY)
    require_reason(reason, "that")
    with short_transaction():
        lock_workflow(workflow_id)
        return two_people.close(two_people.find(seen, workflow_id), user=user, reason=reason)


def review_alone(workflow_id: int, *, user: User, seen: Collection[int], reason: str) -> None:
    """Say that one has looked at what a lead has confirmed alone."""
    require(user, CANCEL_PAID, VIEW_AUDIT)
    require_reason(reason, "a review")
    with short_transaction():
        two_people.review(workflow_id, user=user, seen=seen, reason=reason)

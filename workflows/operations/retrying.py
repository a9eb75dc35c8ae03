"""Start a failed or cancelled workflow again, after its children."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from workflows import extension
from workflows.engine import reopening
from workflows.errors import NotAllowed
from workflows.models import Confirmation, Correction, Event, Workflow
from workflows.models.clock import microseconds
from workflows.operations import family_retries, payments, two_people
from workflows.operations.guards import (
    CANCEL_PAID,
    RETRY,
    lock_workflow,
    record_event,
    record_events,
    require,
    require_status,
    short_transaction,
)
from workflows.postgres.statements import fetch_all
from workflows.signals import store

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# Items that are retried in one slice: some 0.3 s of processor.
TOGETHER = 1000

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
            sentence = two_people.ask(
                workflow_id, user=user, reason=reason, decision=two_people.RETRIED, is_news=second is None
            )
            to_confirm = two_people.open_of(workflow_id) if second else None
            if second is None or to_confirm is None:
                return sentence
            told = two_people.confirm(to_confirm, user=second)
            user = second  # as when one is retried: the history names who confirmed it, and who said so first
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


# Items of a bulk operation that are as they were seen, with no item below them left: a parent reads its children's
# results. What a worker or a person has just now keeps its turn.
_AS_SEEN = """
    SELECT w.id FROM workflows_bulkitem item JOIN workflows_workflow w ON w.id = item.row
     WHERE item.operation_id = %(bulk)s AND item.outcome = '' AND w.status = 'FAILED' AND w.emptied_at IS NULL
       AND item.seen = (extract(epoch FROM w.completed_at) * 1000000)::bigint
       AND (SELECT true FROM workflows_workflow child JOIN workflows_bulkitem below ON below.row = child.id
             WHERE child.parent_id = w.id AND below.operation_id = %(bulk)s AND below.outcome = '' LIMIT 1) IS NULL
     ORDER BY item.id LIMIT %(most)s FOR NO KEY UPDATE OF w SKIP LOCKED"""


def retry_together(bulk_id: int, *, user: User, reason: str) -> list[int]:
    """Retry, in a few statements, items of a bulk operation about which nothing has to be asked; return their ids.

    `retry_alone` takes the others: those that it refuses, that would charge again, or with something open to confirm.
    """
    require(user, RETRY)
    with short_transaction():
        ids = {pk for (pk,) in fetch_all(_AS_SEEN, {"bulk": bulk_id, "most": TOGETHER})}
        ids -= payments.would_charge_again(*ids)
        for each in extension.installed():
            ids -= each.why_not_retry(*ids).keys()
        for asked in (Confirmation.objects.filter(state="asked"), Correction.objects.open()):
            ids -= {*asked.filter(workflow__in=ids).values_list("workflow", flat=True)}
        rows = Workflow.objects.filter(pk__in=ids).only("workflow_type", "current_step").order_by("workflow_type", "pk")
        for _, of_type in groupby(rows, key=lambda row: row.workflow_type):
            _reopen([*of_type])
        record_events({row.pk: row.current_step for row in rows}, Event.Kind.RETRIED, user, reason=reason)
    return sorted(ids)


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
    _reopen([workflow], begun=begun)


def _reopen(workflows: Sequence[Workflow], *, begun: bool = True) -> None:
    reopening.reopen(*workflows, begun=begun)
    ids = [each.pk for each in workflows]
    store.close_cancellations(*ids)
    store.restore_signals(*ids)


def ended_at(workflow: Workflow) -> list[int]:
    """The time of a workflow's end in microseconds, which identifies it; empty if it has not finished."""
    return [microseconds(workflow.completed_at)] if workflow.completed_at else []


def _is_seen(workflow: Workflow, seen: Collection[int]) -> bool:
    return not seen or list(seen) == ended_at(workflow)


def why_not_retry(workflow_id: int, user: User) -> str:
    """Why `user`, who may retry, may not retry this one; empty if they may."""
    return str(family_retries.under_way(workflow_id) or "") or _why_not_this_user(workflow_id, user)


def _why_not_this_user(workflow_id: int, user: User) -> str:
    refused = (each.why_not_retry(workflow_id).get(workflow_id, "") for each in extension.installed())
    own = two_people.said_by_hand(workflow_id) or next(filter(None, refused), "")
    return own or why_not_charge_again(workflow_id, user)


def why_not_charge_again(workflow_id: int, user: User) -> str:
    """Why `user`, who may retry, may not charge again what was refunded; empty if they may."""
    if user.has_perm(CANCEL_PAID) or not payments.would_charge_again(workflow_id):
        return ""
    return "Its charge was refunded or retracted, and a retry charges again: ask a support lead to retry it."

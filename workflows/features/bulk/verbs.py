"""The verbs of bulk operations. Each calls the function that does the same to one workflow or task."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db.models import Case, CharField, Count, Exists, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Now

from workflows.definition import wording_of_type
from workflows.engine import undo_question
from workflows.features.business_key import duplicates
from workflows.health.selecting import with_ids
from workflows.models import BulkItem, Event, FollowUp, ManualTask, Workflow
from workflows.models.follow_up import GIVEN_UP
from workflows.models.workflow import PAUSED, UNACKNOWLEDGED
from workflows.operations import family_retries
from workflows.operations.acknowledging import MONEY_HELD, acknowledge, failures_left
from workflows.operations.bulk_verbs import Became, BulkVerb, Refused, by_state, on_its_row, seen
from workflows.operations.guards import ACKNOWLEDGE, ASSIGN, CANCEL, CANCEL_PAID, RETRY, RUN_NOW
from workflows.operations.payments import (
    Found,
    charged_again,
    charged_among,
    held,
    may_have_been_charged,
    sum_of,
    would_charge_again,
)
from workflows.operations.retrying import retry, retry_alone, retry_together, why_not_retry
from workflows.operations.tasks import assign
from workflows.operations.workflows import cancel, run_now, why_not_cancel
from workflows.telling import consequences
from workflows.wording import is_explained

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# 0 for a workflow that has not ended: a failure before its turn is one that nobody has seen.
_ITS_END = "coalesce((extract(epoch FROM chosen.completed_at) * 1000000)::bigint, 0)"
_UNDER_WAY = Exists(Workflow.objects.filter(pk=OuterRef("workflow_id"), status="PENDING"))
_GIVEN_UP = Q(status="COMPLETE", pk__in=FollowUp.objects.filter(GIVEN_UP).values("workflow"))
_DONE_STAYS = "What it has done in other systems stays done and is not done again; what was reversed is done again."


def _became() -> Case:
    rows = Workflow.objects.filter(pk=OuterRef("row")).values_list(
        Case(
            When(status=Workflow.Status.COMPLETE, then=Value(Became.COMPLETE)),
            When(status=Workflow.Status.FAILED, cancelled_at=None, then=Value(Became.FAILED)),
            When(status=Workflow.Status.FAILED, then=Value(Became.CANCELLED)),
            When(compensating=True, waiting_for=undo_question.ASKED, then=Value(Became.UNDECIDED)),
            When(compensating=True, then=Value(Became.REVERSING)),
            default=Value(Became.UNDER_WAY),
            output_field=CharField(),
        )
    )
    # The newest event, from the end of the index: usually the one that the operation itself wrote.
    started = Event.objects.filter(workflow=OuterRef("row"), kind__in=Event.RUN_AGAIN).order_by("-id").values("at")
    return Case(When(at__lt=Subquery(started[:1]), then=Value(Became.AGAIN)), default=Subquery(rows))


def _money_moved(found: list[Found], charged: str, then: str) -> str:
    return f"{sum_of(found)} {charged}, for {len({each.root for each in found})} of them: {then}" if found else ""


# --- Retry ----------------------------------------------------------------------------------------------


def _not_retried(ids: Collection[int], user: User) -> Refused:
    done = duplicates.done_by_another(*ids)
    for each in (done, set() if user.has_perm(CANCEL_PAID) else would_charge_again(*ids) - done):
        if each:
            yield each, why_not_retry(next(iter(each)), user)


def _explained(ids: Collection[int]) -> str:
    """How many of these failed for a reason that is the patient's, or a colleague's, to mend."""
    codes = with_ids(Workflow.objects.all(), ids).values_list("workflow_type", "last_error_code").annotate(Count("pk"))
    number = sum(found for name, code, found in codes.order_by() if is_explained(wording_of_type(name), code))
    return f"For {number:,} of them a retry alone does not help: look at why they failed." if number else ""


RETRY_EACH = BulkVerb(
    name="retry",
    label="Retry",
    permission=RETRY,
    act=lambda item, **who: retry(item.row, in_bulk=True, seen=seen(item), second=item.operation.approved_by, **who),
    seen=_ITS_END,
    charges_again=True,
    applies=Q(emptied_at=None, status="FAILED", cancelled_at=None),
    refused=_not_retried,
    money=lambda ids: _money_moved(charged_again(*ids), "is charged again", "it was refunded."),
    warns=_explained,
    noun="retry",
    did="retried",
    how=[
        "Each waits its turn behind what is queued, and starts again from the first step.",
        _DONE_STAYS,
        consequences.QUESTIONS,
    ],
    became=_became,
    aim=Became.COMPLETE,
    among="failures",
    examples=[
        "bulk retry --type onboarding --step enroll_in_program --code program_full --dry-run",
        'bulk retry --code unreachable --since 3h --pace 10 --reason "Programs is back."',
    ],
)
RETRY_FAMILY = BulkVerb(
    name=family_retries.VERB,
    permission=RETRY,
    act=lambda item, root, **who: retry_alone(item.row, root=root, seen=seen(item), **who),
    together=retry_together,
    applies=Q(emptied_at=None, status="FAILED"),
    noun="retry",
    did="retried",
    how=["Each starts again from its first step, and goes before what is queued and has not started.", _DONE_STAYS],
    became=_became,
    aim=Became.COMPLETE,
)

# --- Run now and cancel ---------------------------------------------------------------------------------

RUN_EACH_NOW = BulkVerb(
    name="run_now",
    label="Run now",
    permission=RUN_NOW,
    act=on_its_row(run_now),
    applies=Q(emptied_at=None, status="PENDING", invisible_until__gt=Now()) & ~Q(waiting_for=PAUSED),
    noun="early run",
    did="run now",
    how=[
        "A worker takes each up at once. What it waits for may not have happened: then it waits again as before.",
        "Earlier failures still count: after too many in a row at a step a workflow ends as failed.",
    ],
    done="made due at once",
    became=_became,
    aim=Became.COMPLETE,
    otherwise={Became.FAILED: "failed"},
    among="under way",
    examples=['bulk run-now --state waiting --type onboarding --reason "The letters went out."'],
)


def _not_cancelled(ids: Collection[int], user: User) -> Refused:
    if not user.has_perm(CANCEL_PAID) and (charged := may_have_been_charged(*ids)):
        yield charged, why_not_cancel(next(iter(charged)), user)


CANCEL_EACH = BulkVerb(
    name="cancel",
    label="Cancel",
    permission=CANCEL,
    act=on_its_row(cancel),
    takes_away=True,
    applies=Q(emptied_at=None, status="PENDING", compensating=False),
    refused=_not_cancelled,
    money=lambda ids: _money_moved(
        held(*ids), "has been charged, or may have been", "it is given back where a step gives it back."
    ),
    noun="cancellation",
    did="cancelled",
    how=["What each has done in other systems is reversed where it can be. Each can be retried afterwards."],
    done="asked to end",
    became=_became,
    aim=Became.CANCELLED,
    otherwise={
        Became.COMPLETE: "completed before it could be cancelled",
        Became.FAILED: "failed before it could be cancelled",
    },
    among="under way",
    examples=['bulk cancel --state parked --parked-on insurer --reason "The program is closed."'],
)

# --- Acknowledge ----------------------------------------------------------------------------------------


def _acknowledge(item: BulkItem, **who: Any) -> None:
    row = Workflow.objects.filter(pk=item.row).first()
    given_up = row is not None and row.status == Workflow.Status.COMPLETE
    acknowledge(item.row, in_bulk=True, seen=failures_left(row) if row and given_up else seen(item), **who)


def _not_acknowledged(ids: Collection[int], user: User) -> Iterator[tuple[Collection[int], str]]:
    yield charged_among(ids), MONEY_HELD


ACKNOWLEDGE_EACH = BulkVerb(
    name="acknowledge",
    label="Acknowledge",
    permission=ACKNOWLEDGE,
    act=_acknowledge,
    seen=_ITS_END,
    is_quiet=True,
    applies=Q(emptied_at=None) & (UNACKNOWLEDGED | _GIVEN_UP),
    why_not=partial(by_state, failed="acknowledged already"),
    refused=_not_acknowledged,
    noun="acknowledgement",
    did="acknowledged",
    how=[
        "Nothing is called, refunded or reversed.",
        "Each leaves the list of what needs a person, and has your note in its history.",
        "It stays failed, and can still be retried. If it fails again, it needs a person again.",
    ],
    about_reason="What was done about it.",
    among="failures",
    examples=['bulk acknowledge --code card_declined --reason "The customers were told."'],
)

# --- Assign ---------------------------------------------------------------------------------------------


def _not_open(rows: QuerySet[Any]) -> Iterator[str]:
    return ("not open any more" for _ in rows.values_list("pk"))


ASSIGN_EACH = BulkVerb(
    name="assign",
    label="Assign",
    permission=ASSIGN,
    act=lambda item, **who: assign(item.row, seen=seen(item), **who),
    model=ManualTask,
    what="task",
    seen="chosen.assignee_id",
    is_quiet=True,
    applies=Q(_UNDER_WAY, state="open", expires_at__gt=Now()),
    why_not=_not_open,
    noun="assignment",
    did="assigned",
    how=[
        "Your colleague finds them under “For you”, with your note in the history of each workflow.",
        "One that your colleague may not decide, or that somebody takes meanwhile, is skipped and says so.",
    ],
    asks_colleague=True,
)

VERBS = (RETRY_EACH, RETRY_FAMILY, RUN_EACH_NOW, CANCEL_EACH, ACKNOWLEDGE_EACH, ASSIGN_EACH)

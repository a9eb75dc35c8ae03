"""WHAT BECAME of the items of a bulk operation after it was carried out on them, as it is now.

To retry a workflow only queues it: whether it completes is seen later. An item is judged by the run that the operation
started, or was about. Once somebody has started the workflow again, what comes of that is not the operation's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import (
    Case,
    CharField,
    Count,
    Exists,
    F,
    OuterRef,
    QuerySet,
    Subquery,
    TextChoices,
    Value,
    When,
)
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce

from workflows.engine import undo_question
from workflows.models import BulkItem, BulkOperation, Event, FollowUp, OutboxEvent, Workflow


class Became(TextChoices):
    COMPLETE = "complete"
    FOLLOWED_UP = "followed_up"
    SENT = "sent"
    UNDER_WAY = "under_way"
    UNDECIDED = "undecided"
    REVERSING = "reversing"
    FAILED = "failed"
    GIVEN_UP = "given_up"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"
    AGAIN = "again"
    DELETED = "deleted"


# In a list what became of so many items is looked up, and no more.
MOST_LISTED = 10_000
# What still changes by itself.
OPEN = {Became.UNDER_WAY, Became.UNDECIDED, Became.REVERSING}


def _of_workflow() -> Case:
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
    # The newest, from the end of the index: in general the one that the operation itself has written.
    started = Event.objects.filter(workflow=OuterRef("row"), kind__in=Event.RUN_AGAIN).order_by("-id").values("at")
    return Case(When(at__lt=Subquery(started[:1]), then=Value(Became.AGAIN)), default=Subquery(rows))


def _of_event() -> Subquery[Any]:
    rows = OutboxEvent.objects.filter(pk=OuterRef("row")).values_list(
        Case(
            When(since__gt=OuterRef("at"), then=Value(Became.AGAIN)),
            When(state=OutboxEvent.State.OPEN, then=Value(Became.UNDER_WAY)),
            default=F("state"),
            output_field=CharField(),
        )
    )
    return Subquery(rows)


def _of_deferred_step() -> Case:
    """What became of the step that the operation names; a step that is done has no row any more."""
    asked = Event.objects.filter(workflow=OuterRef("row"), kind=Event.Kind.FOLLOW_UP_ASKED, step=OuterRef("step"))
    rows = FollowUp.objects.filter(workflow=OuterRef("row"), step=OuterRef("step")).values_list(
        Case(
            When(due_at=None, then=Value(Became.GIVEN_UP)),
            default=Value(Became.UNDER_WAY),
            output_field=CharField(),
        )
    )
    kept = Workflow.objects.filter(pk=OuterRef("row"), emptied_at=None)
    return Case(
        When(~Exists(kept), then=Value(Became.DELETED)),
        When(at__lt=Subquery(asked.order_by("-id").values("at")[:1]), then=Value(Became.AGAIN)),
        default=Coalesce(Subquery(rows), Value(Became.FOLLOWED_UP), output_field=CharField()),
        output_field=CharField(),
    )


# By verb. The others are finished at once: nothing comes of an acknowledgement, an assignment or a discarding, and a
# message that is redelivered is a signal from then on.
_OF_WORKFLOWS = ("retry", "retry_family", "run_now", "cancel")
_OF = {**dict.fromkeys(_OF_WORKFLOWS, _of_workflow), "redeliver_event": _of_event, "run_again": _of_deferred_step}

_TOGETHER = (_OF_WORKFLOWS, ("redeliver_event",), ("run_again",))


def is_followed(verb: str) -> bool:
    """Whether something becomes of the items after the operation was carried out on them."""
    return verb in _OF


def with_results(items: QuerySet[BulkItem], verb: str) -> QuerySet[Any]:
    """Annotate items on which a verb that is followed was carried out with what `became` of them."""
    if verb == "run_again":
        items = items.annotate(step=KeyTextTransform("step", "operation__arguments"))
    return items.annotate(became=Coalesce(_OF[verb](), Value(Became.DELETED), output_field=CharField()))


def became(*bulks: BulkOperation) -> dict[int, Counter[str]]:
    """How many of the items of each on which it was carried out became what; none for a verb that is not followed."""
    counted: dict[int, Counter[str]] = {bulk.pk: Counter() for bulk in bulks}
    for verbs in _TOGETHER:
        if of_these := [bulk.pk for bulk in bulks if bulk.verb in verbs]:
            items = BulkItem.objects.filter(operation__in=of_these, outcome=BulkItem.Outcome.DONE).order_by()
            told = with_results(items, verbs[0]).values_list("operation", "became").annotate(Count("pk"))
            for bulk_id, state, number in told:
                counted[bulk_id][state] = number
    return counted


def few_enough(bulks: Iterable[BulkOperation]) -> Iterator[BulkOperation]:
    """The first of these that together have so few items that a list can say what became of them."""
    left = MOST_LISTED
    for bulk in bulks:
        if bulk.selected <= left:
            yield bulk
            left -= bulk.selected

"""The bulk verbs that redeliver or discard many undelivered messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.models import Q, QuerySet

from workflows.features.queues.messages import discard, redeliver
from workflows.models import UndeliveredMessage
from workflows.operations.bulk_verbs import BulkVerb, on_its_row, seen
from workflows.operations.guards import SETTLE


def _by_state(rows: QuerySet[Any]) -> Iterator[str]:
    return (f"{state} already" for state in rows.values_list("state", flat=True))


REDELIVER_EACH = BulkVerb(
    name="redeliver",
    label="Redeliver",
    permission=SETTLE,
    act=on_its_row(redeliver),
    model=UndeliveredMessage,
    what="message",
    applies=Q(state=""),
    why_not=_by_state,
    noun="redelivery",
    did="redelivered",
    how=[
        "Each is read as if it came now: a workflow that waits for it goes on, a submission is taken in. One that was "
        "delivered before is not delivered twice.",
        "One that still cannot be delivered is skipped, and stays.",
    ],
)
DISCARD_EACH = BulkVerb(
    name="discard",
    label="Discard",
    permission=SETTLE,
    act=lambda item, **who: discard(item.row, seen=seen(item), **who),
    model=UndeliveredMessage,
    what="message",
    seen="chosen.left_with_broker",
    takes_away=True,
    applies=Q(state=""),
    why_not=_by_state,
    noun="discarding",
    did="discarded",
    how=[
        "No workflow gets them. What they say is deleted, unless a legal hold is on it, and they cannot be redelivered."
    ],
)

"""The bulk verbs that redeliver or discard many events for others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.models import Case, CharField, F, OuterRef, Q, QuerySet, Subquery, Value, When

from workflows.features.outbox.operations import discard_event, redeliver_event
from workflows.models import OutboxEvent
from workflows.operations.bulk_verbs import Became, BulkVerb, on_its_row
from workflows.operations.guards import SETTLE


def _became() -> Subquery[Any]:
    rows = OutboxEvent.objects.filter(pk=OuterRef("row")).values_list(
        Case(
            When(since__gt=OuterRef("at"), then=Value(Became.AGAIN)),
            When(state=OutboxEvent.State.OPEN, then=Value(Became.UNDER_WAY)),
            default=F("state"),
            output_field=CharField(),
        )
    )
    return Subquery(rows)


def _by_state(rows: QuerySet[Any]) -> Iterator[str]:
    return (OutboxEvent.State(state).label.lower() for state in rows.values_list("state", flat=True))


REDELIVER_EACH = BulkVerb(
    name="redeliver_event",
    label="Redeliver",
    permission=SETTLE,
    act=on_its_row(redeliver_event),
    model=OutboxEvent,
    what="event",
    applies=Q(state="given_up"),
    why_not=_by_state,
    noun="redelivery",
    did="redelivered",
    how=[
        "Each is sent again under its own id, in the order of its workflow: the receiver takes it once.",
        "One that cannot be sent for some days is given up again.",
    ],
    done="queued again",
    became=_became,
    aim=Became.SENT,
    otherwise={Became.UNDER_WAY: "to be sent"},
)
DISCARD_EACH = BulkVerb(
    name="discard_event",
    label="Discard",
    permission=SETTLE,
    act=on_its_row(discard_event),
    model=OutboxEvent,
    what="event",
    takes_away=True,
    applies=Q(state__in=["given_up", ""]),
    why_not=_by_state,
    noun="discarding",
    did="discarded",
    how=[
        "The destination is never told. The later events of each workflow are sent without it.",
        "What the event says is deleted.",
    ],
)

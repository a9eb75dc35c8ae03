"""What people may do with events of the outbox: have one sent after all, or discard it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workflows.errors import NotAllowed
from workflows.models import OutboxEvent
from workflows.models.clock import ClockTimestamp
from workflows.operations.guards import SETTLE, record_for, require, require_reason, short_transaction

if TYPE_CHECKING:
    from django.contrib.auth.models import User

State = OutboxEvent.State


def redeliver_event(event_id: int, *, user: User, reason: str = "") -> None:
    """Have an event that was given up sent again, under its id: as one that was published just now."""
    require(user, SETTLE)
    with short_transaction():
        row = _locked(event_id, State.GIVEN_UP)
        now = ClockTimestamp()
        OutboxEvent.objects.filter(pk=row.pk).update(state=State.OPEN, since=now, due_at=now, error="")
        record_for(row, user, "Redelivered", reason)


def discard_event(event_id: int, *, user: User, reason: str) -> None:
    """Say that a destination need not be told. What the event says is deleted; the workflow's later events go on."""
    require(user, SETTLE)
    require_reason(reason, "what is discarded")
    with short_transaction():
        row = _locked(event_id, State.OPEN, State.GIVEN_UP)
        OutboxEvent.objects.filter(pk=row.pk).update(state=State.DISCARDED, settled_at=ClockTimestamp(), body={})
        record_for(row, user, State.DISCARDED.label, reason)


def _locked(event_id: int, *states: State) -> OutboxEvent:
    rows = OutboxEvent.objects.defer("body").select_for_update(no_key=True)
    row = rows.filter(pk=event_id).first()
    if row is None:
        raise NotAllowed("There is no such event.")
    if row.state not in states:
        raise NotAllowed(f"That cannot be done now: it is {State(row.state).label.lower()}.")
    return row

"""What people may do with events of the outbox: redeliver or discard them."""

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
    """Send a given-up event again under its id, with a new time to be given up."""
    require(user, SETTLE)
    with short_transaction():
        row = _locked(event_id, State.GIVEN_UP)
        now = ClockTimestamp()
        OutboxEvent.objects.filter(pk=row.pk).update(state=State.OPEN, since=now, due_at=now, error="")
        record_for(row, user, "Redelivered", reason)


def discard_event(event_id: int, *, user: User, reason: str) -> None:
    """Discard an event: it is not sent, and its body is deleted. The workflow's later events are sent."""
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

"""What people may do with undelivered messages: deliver one again, when what was wrong is mended, or discard it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from workflows.errors import NotAllowed
from workflows.ingress.messages import Arrived, deliver
from workflows.models import UndeliveredMessage
from workflows.operations.guards import (
    SETTLE,
    after_commit,
    record_for,
    require,
    require_reason,
    short_transaction,
)
from workflows.postgres.jsonb import InputRefused
from workflows.signals import store, waking

if TYPE_CHECKING:
    from django.contrib.auth.models import User

State = UndeliveredMessage.State


def redeliver(message_id: int, *, user: User, reason: str = "") -> None:
    """Deliver a message once more, as it came: a workflow that waits for its signal goes on. A duplicate is delivered.

    Refused, with the reason, if it still cannot become a signal.
    """
    require(user, SETTLE)
    with short_transaction():
        row = _locked(message_id)
        try:
            deliver(Arrived.kept(row), send=_send)
        except InputRefused as refusal:
            raise NotAllowed(f"It still cannot be delivered. {refusal}") from None
        _settle(row, State.REDELIVERED, user, reason)


def discard(message_id: int, *, user: User, reason: str) -> None:
    """Say that a message is not needed: no workflow gets it. What it says is deleted."""
    require(user, SETTLE)
    require_reason(reason, "what is discarded")
    with short_transaction():
        _settle(_locked(message_id), State.DISCARDED, user, reason)


def _locked(message_id: int) -> UndeliveredMessage:
    row = UndeliveredMessage.objects.select_for_update(no_key=True).filter(pk=message_id).first()
    if row is None:
        raise NotAllowed("There is no such message.")
    if row.state != State.OPEN:
        raise NotAllowed(f"It is {State(row.state).label.lower()} already.")
    return row


def _send(**signal: Any) -> bool:
    """Store a signal in the operation's own transaction, and wake the workflows that it is for after it."""
    signal_id = store.store(**signal)
    if signal_id is not None:
        after_commit(partial(_wake_for, signal_id))
    return signal_id is not None


def _wake_for(signal_id: int) -> None:
    with waking.leave_the_rest_to_maintenance():
        waking.wake_for(signal_id)


def _settle(row: UndeliveredMessage, state: State, user: User, reason: str) -> None:
    UndeliveredMessage.objects.filter(pk=row.pk).update(state=state, content=[])
    record_for(row, user, state.label, reason)

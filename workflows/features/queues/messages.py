"""What people may do with undelivered messages: deliver one again, when what was wrong is mended, or discard it.

A submission that a queue's door has refused goes through that door again, and is emptied with the same commit.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from workflows.errors import NotAllowed
from workflows.ingress.messages import Arrived, deliver
from workflows.models import UndeliveredMessage
from workflows.models.undelivered_message import REFUSED
from workflows.operations.guards import (
    SETTLE,
    after_commit,
    record_for,
    require,
    require_reason,
    short_transaction,
)
from workflows.postgres.jsonb import InputRefused
from workflows.postgres.statements import execute
from workflows.signals import store, waking

if TYPE_CHECKING:
    from django.contrib.auth.models import User

State = UndeliveredMessage.State

# What a legal hold is on stays, and goes by its age when the hold has ended (`retention.ages`).
HELD = """EXISTS (SELECT FROM workflows_hold h WHERE h.until > clock_timestamp() AND h.hash = ANY (m.hashes))"""
_EMPTY = f"""
    UPDATE workflows_undeliveredmessage m SET content = '[]', hashes = NULL
     WHERE id = ANY (%(ids)s) AND NOT {HELD}"""  # noqa: S608 (ours)


def redeliver(message_id: int, *, user: User, reason: str = "") -> None:
    """Deliver a message once more, as it came: a workflow that waits for its signal goes on. A duplicate is delivered.

    Refused, with the reason, if it still cannot become a signal.
    """
    require(user, SETTLE)
    with short_transaction():
        row = _locked(message_id)
        if row.left_with_broker:
            raise NotAllowed("The broker has these: send its dead letters again, then discard this line.")
        if row.queue:
            from workflows.features.queues import refused  # when it is first needed: it loads the intake

            refused.enter_again(row)
        else:
            _deliver(row)
        _settle(row, State.REDELIVERED, user, reason)


def discard(message_id: int, *, user: User, reason: str, seen: Collection[int] = ()) -> None:
    """Say that a message is not needed: no workflow gets it. What it says is deleted, unless a legal hold is on it.

    `seen`: of how many that the broker has the user was told.
    """
    require(user, SETTLE)
    require_reason(reason, "what is discarded")
    with short_transaction():
        row = _locked(message_id)
        if seen and row.left_with_broker not in seen:
            raise NotAllowed("More were refused since: look at it again.")
        _settle(row, State.DISCARDED, user, reason)


def forget(ids: Collection[int], *, user: User, reason: str) -> None:
    """Empty refused submissions, and discard those that are open: in the caller's transaction, for an erasure."""
    rows = UndeliveredMessage.objects.select_for_update(no_key=True).filter(pk__in=ids, topic__startswith=REFUSED)
    for row in rows.filter(state=State.OPEN).order_by("pk"):
        _settle(row, State.DISCARDED, user, reason)
    empty(ids)


def empty(ids: Collection[int]) -> None:
    """Delete what messages say, but for what a legal hold is on."""
    execute(_EMPTY, {"ids": list(ids)})


def _deliver(row: UndeliveredMessage) -> None:
    try:
        deliver(Arrived.kept(row), send=_send)
    except InputRefused as refusal:
        raise NotAllowed(f"It still cannot be delivered. {refusal}") from None


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
    UndeliveredMessage.objects.filter(pk=row.pk).update(state=state)
    empty([row.pk])
    record_for(row, user, state.label, reason)

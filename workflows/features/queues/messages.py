"""What people may do with undelivered messages: deliver one again after the fault is fixed, or discard it.

A submission that a queue's door has refused enters through the door again; the same commit empties it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from workflows.errors import NotAllowed
from workflows.ingress.messages import Arrived, deliver
from workflows.models import UndeliveredMessage
from workflows.models.undelivered_message import REFUSED
from workflows.operations.guards import (
    SETTLE,
    record_for,
    require,
    require_reason,
    short_transaction,
)
from workflows.postgres.jsonb import InputRefused
from workflows.postgres.statements import execute

if TYPE_CHECKING:
    from django.contrib.auth.models import User

State = UndeliveredMessage.State

# A message under a legal hold keeps its content, until it is old enough after the hold (`retention.ages`).
HELD = """EXISTS (SELECT FROM workflows_hold h WHERE h.until > clock_timestamp() AND h.hash = ANY (m.hashes))"""
_EMPTY = f"""
    UPDATE workflows_undeliveredmessage m SET content = '[]', hashes = NULL
     WHERE id = ANY (%(ids)s) AND NOT {HELD}"""  # noqa: S608 (ours)


def redeliver(message_id: int, *, user: User, reason: str = "") -> None:
    """Deliver a message again, as it came: a workflow that waits for its signal goes on, if it has not yet.

    Raises NotAllowed, with the reason, if it still cannot become a signal.
    """
    require(user, SETTLE)
    with short_transaction():
        row = _locked(message_id)
        if row.left_with_broker:
            raise NotAllowed("The broker has these: send its dead letters again, then discard this line.")
        if row.queue:
            from workflows.features.queues import refused  # loads the intake

            refused.enter_again(row)
        else:
            _deliver(row)
        _settle(row, State.REDELIVERED, user, reason)


def discard(message_id: int, *, user: User, reason: str, seen: Collection[int] = ()) -> None:
    """Discard a message: no workflow gets it. Its content is deleted, unless a legal hold is on it.

    `seen`: how many of the broker's messages the user was shown.
    """
    require(user, SETTLE)
    require_reason(reason, "what is discarded")
    with short_transaction():
        row = _locked(message_id)
        if seen and row.left_with_broker not in seen:
            raise NotAllowed("More were refused since: look at it again.")
        _settle(row, State.DISCARDED, user, reason)


def forget(ids: Collection[int], *, user: User, reason: str) -> None:
    """Empty refused submissions, and discard the open ones, in the caller's transaction. For an erasure."""
    rows = UndeliveredMessage.objects.select_for_update(no_key=True).filter(pk__in=ids, topic__startswith=REFUSED)
    for row in rows.filter(state=State.OPEN).order_by("pk"):
        _settle(row, State.DISCARDED, user, reason)
    empty(ids)


def empty(ids: Collection[int]) -> None:
    """Delete the content of messages, except under a legal hold."""
    execute(_EMPTY, {"ids": list(ids)})


def _deliver(row: UndeliveredMessage) -> None:
    try:
        deliver(Arrived.kept(row))
    except InputRefused as refusal:
        raise NotAllowed(f"It still cannot be delivered. {refusal}") from None


def _locked(message_id: int) -> UndeliveredMessage:
    row = UndeliveredMessage.objects.select_for_update(no_key=True).filter(pk=message_id).first()
    if row is None:
        raise NotAllowed("There is no such message.")
    if row.state != State.OPEN:
        raise NotAllowed(f"It is {State(row.state).label.lower()} already.")
    return row


def _settle(row: UndeliveredMessage, state: State, user: User, reason: str) -> None:
    UndeliveredMessage.objects.filter(pk=row.pk).update(state=state)
    empty([row.pk])
    record_for(row, user, state.label, reason)

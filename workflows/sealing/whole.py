"""WHOLE: what is sealed as one value, for its row: the secrets of webhooks, and what is not delivered yet."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol
from uuid import UUID

from django.db.models import Model, Q

from workflows.models import OutboxEvent, UndeliveredMessage, WebhookSecret
from workflows.sealing import envelopes


class Sealed(Protocol):
    """A row that has such a value: it opens for no other row, or place."""

    @property
    def sealed_for(self) -> tuple[UUID, str]: ...


def seal(row: Sealed, value: Any) -> str:
    """The envelope to store. The caller has registered the key that writes (`key_register`)."""
    key, place = row.sealed_for
    return envelopes.seal(value, row=key, field=place)


def unseal(row: Sealed, stored: Any) -> Any:
    """The value; one from before it was sealed as it is. Raises Unreadable."""
    key, place = row.sealed_for
    return envelopes.unseal(stored, row=key, field=place)


class Table(NamedTuple):
    """Where such a value stands, and which rows have one: it is emptied once the row is settled, and not held."""

    name: str
    model: type[Model]
    column: str
    which: Q = Q()


# While a legal hold is on a refused submission it keeps its hashes, and what it says.
_KEPT = Q(left_with_broker=0) & (Q(state=UndeliveredMessage.State.OPEN) | Q(hashes__isnull=False))
TABLES = [  # `staff` adds its own
    Table("webhook secret", WebhookSecret, "secret"),
    Table("undelivered message", UndeliveredMessage, "content", _KEPT),
    Table("event", OutboxEvent, "body", Q(state__in=(OutboxEvent.State.OPEN, OutboxEvent.State.GIVEN_UP))),
]

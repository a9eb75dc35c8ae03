"""WHOLE: values that are sealed as a whole for their row: secrets of webhooks, and content not delivered yet."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol
from uuid import UUID

from django.db.models import Model, Q

from workflows.models import OutboxEvent, UndeliveredMessage, WebhookSecret
from workflows.sealing import envelopes


class Sealed(Protocol):
    """A row with such a value, which opens for no other row or field."""

    @property
    def sealed_for(self) -> tuple[UUID, str]: ...


def seal(row: Sealed, value: Any) -> str:
    """The envelope to store. The caller has registered the first data key (`key_register`)."""
    key, field = row.sealed_for
    return envelopes.seal(value, row=key, field=field)


def unseal(row: Sealed, stored: Any) -> Any:
    """The value; one that was stored before sealing is returned as it is. Raises Unreadable."""
    key, field = row.sealed_for
    return envelopes.unseal(stored, row=key, field=field)


class Table(NamedTuple):
    """A column with such values, and the rows that have one: a settled row is emptied, unless it is held."""

    name: str
    model: type[Model]
    column: str
    which: Q = Q()


# A refused submission under a legal hold keeps its hashes and its content.
_KEPT = Q(left_with_broker=0) & (Q(state=UndeliveredMessage.State.OPEN) | Q(hashes__isnull=False))
TABLES = [  # `staff` adds its own
    Table("webhook secret", WebhookSecret, "secret"),
    Table("undelivered message", UndeliveredMessage, "content", _KEPT),
    Table("event", OutboxEvent, "body", Q(state__in=(OutboxEvent.State.OPEN, OutboxEvent.State.GIVEN_UP))),
]

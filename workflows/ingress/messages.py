"""MESSAGES of a topic, or events of a declared source, as they came or as they are stored.

Each is delivered as a signal, or refused with a reason and stored as undelivered. Kafka's client is not needed here, so
people can redeliver without it.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from django.db import DataError, IntegrityError, transaction

from workflows.ingress import signal_bodies, signal_sources
from workflows.ingress.signal_sources import SignalSource
from workflows.models import UndeliveredMessage
from workflows.models.undelivered_message import WEBHOOK
from workflows.postgres import synchronous
from workflows.postgres.jsonb import InputRefused
from workflows.postgres.statements import execute
from workflows.sealing import key_register, whole
from workflows.sealing.envelopes import Unreadable
from workflows.signals import store

Headers = Sequence[tuple[str, bytes | None]]
# The headers of a message whose headers cannot be read.
UNREADABLE_HEADERS: list[tuple[str, bytes | None]] = [("\ufffd", None)]


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message, and its position. `sent_at_ms`: when it was sent or the broker stored it; equal on each delivery."""

    topic: str
    partition: int
    offset: int
    sent_at_ms: int | None
    headers: Headers
    value: bytes
    key: bytes | None = None

    @classmethod
    def by_webhook(cls, source: SignalSource, headers: Mapping[str, str], body: bytes) -> Arrived:
        """An event has no position in a topic; a digest replaces it. The digest covers only what is the same when the
        event is sent again, and what nobody else can vary: otherwise one event could be stored without end, with other
        headers.
        """
        kept = source.received(headers, body).headers
        covered = sorted(kept.items()) if source.covers_headers else []
        same = [f"{name}:{value}\n".encode() for name, value in covered if name.startswith("ce-")]
        digest = int.from_bytes(sha256(b"".join(same) + body).digest()[:8]) >> 1
        encoded = [(name, value.encode("latin-1", "replace")) for name, value in kept.items()]
        return cls(f"{WEBHOOK}{source.name}", 0, digest, None, encoded, body)

    @classmethod
    def kept(cls, row: UndeliveredMessage) -> Arrived:
        """A stored message. Raises InputRefused if it can no longer be read."""
        try:
            content = whole.unseal(row, row.content)
        except Unreadable as unreadable:
            raise InputRefused("content_unreadable", f"What it says cannot be read: {unreadable}") from None
        headers = [(name, _bytes(value)) for name, value in content["headers"]]
        value, key = _bytes(content["value"]) or b"", _bytes(content["key"])
        return cls(row.topic, row.partition, row.offset, row.sent_at_ms or None, headers, value, key)


def deliver(message: Arrived, *, send: Callable[..., bool] = store.send) -> bool | None:
    """Send the signal that a message holds. Returns False for a duplicate, None if its source has no use for it.

    Raises InputRefused.
    """
    source = signal_sources.of_topic(message.topic)
    if source:
        declared = _declared_signal(source, message)
        if declared is None:
            return None
        given, body = declared
    else:
        given, body = None, signal_bodies.parse(message.value)
    send = partial(
        send,
        source=message.topic.removeprefix(WEBHOOK) if message.topic.startswith(WEBHOOK) else f"kafka:{message.topic}",
        name=body.name,
        workflow_id=signal_bodies.workflow_id_of(body.workflow) if body.workflow else None,
        linking_id=body.linking_id,
        payload=body.payload,
    )
    try:
        given = given or _given_id(message.headers)
        return send(dedupe_key=given) if given else _send_by_position(message, send)
    except store.DedupeKeyReused:
        raise InputRefused("message_id_reused", "Another message with this id says something else.") from None
    except store.UnknownWorkflow:
        raise signal_bodies.NoSuchWorkflow from None
    except (DataError, IntegrityError):
        raise InputRefused("not_storable", "It is JSON, but PostgreSQL cannot keep it.") from None


_KEEP = """
    INSERT INTO workflows_undeliveredmessage (topic, "partition", "offset", sent_at_ms, code, reason, content)
    VALUES (%(topic)s, %(partition)s, %(offset)s, %(sent_at_ms)s, %(code)s, %(reason)s, %(content)s::jsonb)
    ON CONFLICT (topic, "partition", "offset", sent_at_ms) DO NOTHING"""


def keep_undelivered(message: Arrived, refused: InputRefused) -> None:
    """Store a message, sealed, with the reason; only once, however often it comes."""
    position = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "sent_at_ms": message.sent_at_ms or 0,
    }
    headers = [[name, _in_base64(value)] for name, value in message.headers]
    content = {"key": _in_base64(message.key), "value": _in_base64(message.value), "headers": headers}
    key_register.register()
    values = {
        **position,
        "code": refused.code,
        "reason": str(refused),
        "content": json.dumps(whole.seal(UndeliveredMessage(**position), content)),
    }
    with transaction.atomic():
        if not execute(_KEEP, values):
            synchronous.promise()


def _in_base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(in_base64: str | None) -> bytes | None:
    return None if in_base64 is None else b64decode(in_base64)


def _declared_signal(source: SignalSource, message: Arrived) -> tuple[str, signal_bodies.SignalBody] | None:
    if len(message.value) > signal_bodies.MAX_BYTES:
        raise InputRefused("too_large", f"A body has at most {signal_bodies.MAX_BYTES} bytes.")
    encoding = "latin-1" if message.topic.startswith(WEBHOOK) else "utf-8"
    headers = {name: value.decode(encoding, "replace") for name, value in message.headers if value}
    return source.told(source.received(headers, message.value))


def _send_by_position(message: Arrived, send: Callable[..., bool]) -> bool:
    """Send the signal of a message without an id, identified by its position, which differs if the producer sends it
    again.

    In a topic that was deleted and created again, another message has that position, but was sent at another time. So
    that time is stored with the signal.
    """
    # No id may contain the tab, so a producer's id "0:7" differs from the message at that position.
    position, sent_at_ms = f"{message.partition}\t{message.offset}", message.sent_at_ms
    try:
        return send(dedupe_key=position, sent_at_ms=sent_at_ms)
    except store.DedupeKeyReused:
        if sent_at_ms is None:
            raise
        return send(dedupe_key=f"{position}\t{sent_at_ms}", sent_at_ms=sent_at_ms)


def _given_id(headers: Headers) -> str | None:
    """The id that the producer gave the message, if any. Raises InputRefused."""
    if list(headers) == UNREADABLE_HEADERS:
        raise InputRefused("headers_invalid", "The name of a header is not UTF-8.")
    for header in ("id", "ce_id"):
        value = next((value for name, value in headers if name == header and value), None)
        if value is not None:
            key = value.decode(errors="replace")
            if len(key) > 200 or not key.isprintable() or "\ufffd" in key:
                raise InputRefused(
                    "id_invalid", f'The header "{header}" is not printable text of at most 200 characters.'
                )
            return key
    return None

"""A MESSAGE of Kafka becomes a signal, or is kept as undelivered; each once, however often it comes."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message
from django.db import DataError, IntegrityError

from workflows.ingress import signal_bodies
from workflows.postgres.jsonb import InputRefused
from workflows.postgres.statements import fetch_one
from workflows.signals import store

# The headers of a message whose headers cannot be read.
UNREADABLE_HEADERS: list[tuple[str, bytes | None]] = [("\ufffd", None)]


def store_signal(message: Message, value: bytes) -> bool:
    """Store the signal that a message holds; False when it is a duplicate. Raises InputRefused."""
    body = signal_bodies.parse(value)
    send = partial(
        store.send,
        source=f"kafka:{message.topic()}",
        name=body.name,
        workflow_id=signal_bodies.workflow_id_of(body.workflow) if body.workflow else None,
        linking_id=body.linking_id,
        payload=body.payload,
    )
    try:
        given = _given_id(message)
        return send(dedupe_key=given) if given else _send_by_place(message, send)
    except store.DedupeKeyReused:
        raise InputRefused("message_id_reused", "Another message with this id says something else.") from None
    except (DataError, IntegrityError):
        raise InputRefused("not_storable", "It is JSON, but PostgreSQL cannot keep it.") from None


def _send_by_place(message: Message, send: Callable[..., bool]) -> bool:
    """Send the signal of a message without an id, named by its place, which differs if the producer sends it again.

    In a topic that was deleted and created again, another message has that place, but was sent at another time: so that
    time is kept with the signal.
    """
    # The tab, which no id may have, keeps a producer's id "0:7" apart from the message at that place.
    place, sent_at_ms = f"{message.partition()}\t{message.offset()}", _sent_at_ms(message)
    try:
        return send(dedupe_key=place, sent_at_ms=sent_at_ms)
    except store.DedupeKeyReused:
        if sent_at_ms is None:
            raise
        return send(dedupe_key=f"{place}\t{sent_at_ms}", sent_at_ms=sent_at_ms)


def _sent_at_ms(message: Message) -> int | None:
    """When it was sent, or the broker stored it: the same on each delivery. None in a very old format."""
    kind, at = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else at


def _given_id(message: Message) -> str | None:
    """The id that the producer gave the message. Raises InputRefused."""
    headers = _headers(message)
    if headers == UNREADABLE_HEADERS:
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


def keep_undelivered(message: Message, refused: InputRefused) -> None:
    """Keep the message with the reason; once, however often it comes."""
    headers = [[name, value and b64encode(value).decode()] for name, value in _headers(message)]
    fetch_one(
        """INSERT INTO workflows_undeliveredmessage (
                  topic, "partition", "offset", sent_at_ms, code, reason, key, value, headers)
           VALUES (%(topic)s, %(partition)s, %(offset)s, %(sent_at_ms)s, %(code)s, %(reason)s, %(key)s, %(value)s,
                   %(headers)s::jsonb)
           ON CONFLICT (topic, "partition", "offset", sent_at_ms) DO NOTHING RETURNING id""",
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "sent_at_ms": _sent_at_ms(message) or 0,
            "code": refused.code,
            "reason": str(refused),
            "key": message.key(),
            "value": message.value(),
            "headers": json.dumps(headers),
        },
    )


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    """The message's headers; UNREADABLE_HEADERS where a name is not UTF-8: Kafka's client then returns none."""
    try:
        found: Any = message.headers() or []
    except (SystemError, UnicodeDecodeError):
        found = UNREADABLE_HEADERS
        message.set_headers(found)  # a second call would not raise, but return a list that is broken in C
    return [(name, value) for name, value in found]

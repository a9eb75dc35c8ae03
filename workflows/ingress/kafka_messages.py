"""A MESSAGE of Kafka becomes a signal, or is kept as undelivered; each once, however often it comes."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from workflows.ingress.messages import UNREADABLE_HEADERS, Arrived, deliver
from workflows.postgres.jsonb import InputRefused
from workflows.postgres.statements import fetch_one


def store_signal(message: Message, value: bytes) -> bool:
    """Store the signal that a message holds; False when it is a duplicate. Raises InputRefused."""
    place = str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)
    return deliver(Arrived(*place, _sent_at_ms(message), _headers(message), value))


def _sent_at_ms(message: Message) -> int | None:
    """When it was sent, or the broker stored it: the same on each delivery. None in a very old format."""
    kind, at = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else at


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

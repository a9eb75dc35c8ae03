"""Converts messages of Kafka's client into the project's types."""

from __future__ import annotations

from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from workflows.features.queues.refused import Came
from workflows.features.queues.submissions import Sent
from workflows.ingress.messages import UNREADABLE_HEADERS, Arrived


def arrived(message: Message, value: bytes) -> Arrived:
    """The message with its topic, partition and offset."""
    place = *partition_of(message), int(message.offset() or 0)
    key: Any = message.key()
    return Arrived(*place, _sent_at_ms(message), raw_headers(message), value, key)


def came(message: Message, sent: Sent) -> Came:
    """A submission with its topic, partition and offset."""
    return Came(*partition_of(message), int(message.offset() or 0), _sent_at_ms(message) or 0, sent)


def partition_of(message: Message) -> tuple[str, int]:
    return str(message.topic()), int(message.partition() or 0)


def place_of(message: Message) -> str:
    return f"{message.topic()} {message.partition()}:{message.offset()}"


def text_headers(message: Message) -> dict[str, str]:
    """The headers that have a value, by lower-case name. Repeated headers are joined, as in HTTP."""
    headers: dict[str, str] = {}
    for name, value in raw_headers(message):
        if not value:
            continue
        text, known = value.decode(errors="replace"), headers.get(name.lower())
        headers[name.lower()] = text if known is None else f"{known},{text}"
    return headers


def _sent_at_ms(message: Message) -> int | None:
    """The time when it was sent or stored, the same on each delivery. None in a very old format."""
    kind, at = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else at


def raw_headers(message: Message) -> list[tuple[str, bytes | None]]:
    """The message's headers; UNREADABLE_HEADERS if a name is not UTF-8, because Kafka's client then returns none."""
    try:
        found: Any = message.headers() or []
    except (SystemError, UnicodeDecodeError):
        found = UNREADABLE_HEADERS
        message.set_headers(found)  # a second call would return a list that is broken in C
    return [(name, value) for name, value in found]

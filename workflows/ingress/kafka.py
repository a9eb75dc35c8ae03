"""KAFKA: messages of topics become signals in the inbox.

Of each message first the signal is committed, then the workflow woken, and only then the offset stored for the group.
Whoever dies in between gets the message again, and its signal is a duplicate: nothing is lost, nothing happens twice.
A message that can be no signal is kept as undelivered, in the same order, and the next one goes through.

While the database is away the message stays in hand. Every partition is paused and polled on: what does not poll for
`max.poll.interval.ms` is taken for dead by its group, which then gives the partitions to somebody as helpless.

https://github.com/confluentinc/librdkafka/blob/master/INTRODUCTION.md#auto-offset-commit
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
from base64 import b64encode
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from django.db import DataError, IntegrityError, connection

from workflows import failpoints, inbox
from workflows.ingress import signal_bodies
from workflows.postgres.deadlines import DatabaseUnavailable, ask
from workflows.postgres.jsonb import Refused
from workflows.postgres.statements import fetch_one
from workflows.redaction import frames
from workflows.stop_flag import Flag

logger = logging.getLogger(__name__)

# Kafka's own rule for a name, and short enough for a signal's source of 150 characters.
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,144}")

# Seconds. How long a poll sleeps without looking whether somebody wants us to stop.
POLL = 0.5
# What is done is told to the group this often. A crash repeats that much, as duplicates.
COMMIT_EVERY = 1.0
# Between two tries while the database is away, doubling: a restart takes a second or two, a failover a minute.
FIRST_DELAY = 0.5
MAX_DELAY = 10.0

# What no reconnecting mends, though the client goes on trying: somebody has to know.
HOPELESS = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}

# What stands for the headers of a message that cannot be read.
UNREADABLE: list[tuple[str, bytes | None]] = [("\ufffd", None)]

# On these rests the order above.
OURS = {"enable.auto.commit": False, "enable.auto.offset.store": False, "enable.partition.eof": True}


class KafkaFailed(Exception):
    """Kafka will not have us, now or later. The message is for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `consumekafka` was asked for. `properties` are librdkafka's; times are seconds."""

    brokers: str
    topics: Sequence[str]
    group: str
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)  # passwords may be among them
    drain: bool = False
    max_runtime: float | None = None


class Relay:
    """One member of the group: takes the messages of its partitions, one after the other."""

    def __init__(self, options: Options, stopping: Flag) -> None:
        self.options = options
        self.stopping = stopping
        self.counts: Counter[str] = Counter()
        self._in_hand: deque[Message] = deque()  # received, and the database has not taken them yet
        self._paused = False
        self._delay = 0.0
        self._stored = False  # offsets that the group has not been told
        self._commit_at = 0.0
        self._assigned = False
        self._at_end: set[tuple[str, int]] = set()
        self._troubles: set[int] = set()  # codes that were told, since all was well
        self._hopeless: KafkaError | None = None
        try:
            self._client = Consumer(self._configuration(), logger=logger.getChild("client"))
        except KafkaException as error:
            raise KafkaFailed(f"Kafka's client refuses its configuration: {_error_in(error).str()}.") from None

    def run(self) -> None:
        """Go on until told to stop, then commit and leave the group. Raises KafkaFailed."""
        options, began = self.options, monotonic()
        name = f"onramp kafka {socket.gethostname()}:{os.getpid()}"
        connection.settings_dict.setdefault("OPTIONS", {}).setdefault("application_name", name)
        self._client.subscribe(
            list(options.topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        try:
            while not self.stopping.is_set() and not (options.drain and self._drained()):
                if options.max_runtime is not None and monotonic() > began + options.max_runtime:
                    break
                self.process_next()
        finally:
            self._client.close()  # revokes the partitions, and so commits
            counts = ", ".join(f"{number} {what}" for what, number in sorted(self.counts.items()))
            logger.info("stopped: %s", counts or "no messages")

    def process_next(self) -> bool:
        """Deal with one message. False when none came, or the database did not take it: then it stays in hand."""
        message = self._next()
        self._commit_now_and_then()
        if message is None:
            return False
        try:
            self._settle(message)
        except DatabaseUnavailable:
            self._in_hand.appendleft(message)
            self._wait_for_database(message)
            return False
        if self._delay:
            self._delay = 0.0
            logger.info("the database is back")
        failpoints.reach("after_commit", "message")
        self._done_with(message)
        return True

    # --- A message ------------------------------------------------------------------------------

    def _next(self) -> Message | None:
        if self._in_hand:
            return self._in_hand.popleft()
        if self._paused:
            self._client.resume(self._client.assignment())
            self._paused = False
        return self._poll(POLL)

    def _settle(self, message: Message) -> None:
        """Make it a signal, or keep it as undelivered.

        Raises DatabaseUnavailable, having done nothing that may not be repeated.
        """
        value = message.value()
        if value is None:
            self._count("tombstones", message)  # no fact, and nothing that somebody could look at
            return
        try:
            told = ask(lambda: _tell(message, value))
        except (Refused, ArithmeticError, LookupError, TypeError, ValueError) as error:
            # The last resort is for what we have not thought of: one message must not hold up its partition for ever.
            refusal = error if isinstance(error, Refused) else Refused("unreadable", "It cannot be read: see the log.")
            if refusal is not error:
                logger.error("%s cannot be read:\n%s", _place(message), frames(error))
            ask(lambda: _keep_undelivered(message, refusal))
            self.counts["undelivered"] += 1
            logger.warning("undelivered %s: %s", _place(message), refusal.code)
        else:
            self._count("signals" if told else "duplicates", message)

    def _done_with(self, message: Message) -> None:
        """After the database's commit, never before."""
        try:
            self._client.store_offsets(message=message)
            self._stored = True
        except KafkaException as error:
            # The partition is another member's by now, and the message comes again there: a duplicate.
            logger.info("%s is not ours any more: %s", _place(message), _error_in(error).name())

    def _count(self, what: str, message: Message) -> None:
        self.counts[what] += 1
        logger.debug("%s: %s", _place(message), what)

    # --- The database is away -------------------------------------------------------------------

    def _wait_for_database(self, message: Message) -> None:
        """Keep polling with every partition paused, for a while, so that the group sees that we live."""
        if not self._delay:
            logger.warning("the database is away: %s and what comes after it wait", _place(message))
        self._delay = min(self._delay * 2, MAX_DELAY) or FIRST_DELAY
        if not self._paused:
            self._client.pause(self._client.assignment())
            self._paused = True
        deadline = monotonic() + self._delay
        while (left := deadline - monotonic()) > 0 and not self.stopping.is_set():
            if another := self._poll(min(left, POLL)):  # of a partition that came to us in the meantime
                self._in_hand.append(another)
                self._client.pause([TopicPartition(*_partition(another))])

    # --- The group ------------------------------------------------------------------------------

    def _poll(self, seconds: float) -> Message | None:
        """The next message, if one comes within `seconds`; callbacks run in here. Raises KafkaFailed."""
        message = self._client.poll(seconds)
        error = message.error() if message is not None else None
        if message is not None and error is None:
            self._at_end.discard(_partition(message))
            self._troubles.clear()
        elif message is not None and error is not None and error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add(_partition(message))
            self._troubles.clear()
        elif error is not None:
            self._hear(error)
        if self._hopeless:
            raise KafkaFailed(f"Kafka will not have us: {self._hopeless.str()}")
        return message if error is None else None

    def _commit_now_and_then(self) -> None:
        if self._stored and monotonic() > self._commit_at:
            self._stored = False
            self._commit_at = monotonic() + COMMIT_EVERY
            self._commit(asynchronous=True)

    def _commit(self, *, asynchronous: bool) -> None:
        try:
            if asynchronous:
                self._client.commit(asynchronous=True)
            else:
                self._client.commit(asynchronous=False)
        except KafkaException as error:
            self._on_commit(_error_in(error), [])

    def _drained(self) -> bool:
        ends = ((p.topic, p.partition) in self._at_end for p in self._client.assignment())
        return self._assigned and not self._in_hand and all(ends)

    def _on_assign(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        logger.info("given %s", _names(partitions))
        self._assigned = True

    def _on_revoke(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        """Called before they are taken away: what is done is told the group, what is in hand comes again elsewhere."""
        logger.info("giving back %s", _names(partitions))
        self._forget(partitions)
        self._commit(asynchronous=False)

    def _on_lost(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        """They are another member's already; it is too late to commit."""
        logger.warning("lost %s", _names(partitions))
        self._forget(partitions)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        if self._paused:
            self._client.resume(partitions)  # else they come back paused, if they come back, and stay so
        gone = {(p.topic, p.partition) for p in partitions}
        self._at_end -= gone
        self._in_hand = deque(message for message in self._in_hand if _partition(message) not in gone)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is not None and error.code() != KafkaError._NO_OFFSET:
            self._stored = True  # again, next time
            self._hear(error)

    def _hear(self, error: KafkaError) -> None:
        """Tell of a trouble once, until all is well again: the client mends it, and repeats it many times a second."""
        if error.fatal() or error.code() in HOPELESS:
            self._hopeless = error
        elif error.code() not in self._troubles:
            self._troubles.add(error.code())
            logger.warning("Kafka: %s (%s)", error.str(), error.name())

    def _configuration(self) -> dict[str, Any]:
        return {
            "client.id": "onramp",
            "auto.offset.reset": "earliest",  # a new group begins with what is there, rather than miss something
            "log_level": 2,  # what the client logs below that, it tells `_hear` as well
            **self.options.properties,
            "bootstrap.servers": self.options.brokers,
            "group.id": self.options.group,
            **OURS,
            "error_cb": self._hear,
            "on_commit": self._on_commit,
        }


def _tell(message: Message, value: bytes) -> bool:
    """Send what the message says; False when it had been told before. Raises Refused."""
    fact = signal_bodies.parse(value)
    try:
        return inbox.send(
            source=f"kafka:{message.topic()}",
            dedupe_key=_dedupe_key(message),
            name=fact.name,
            workflow_id=signal_bodies.workflow_called(fact.workflow) if fact.workflow else None,
            linking_id=fact.linking_id,
            payload=fact.payload,
        )
    except inbox.DedupeKeyReused:
        raise Refused("message_id_reused", "Another message with this id says something else.") from None
    except (DataError, IntegrityError):
        raise Refused("not_storable", "It is JSON, but PostgreSQL cannot keep it.") from None


def _dedupe_key(message: Message) -> str:
    """The id that the producer gave it, else its place: that of a producer's own repetition is another one."""
    headers = _headers(message)
    if headers == UNREADABLE:
        raise Refused("headers_invalid", "The name of a header is not UTF-8.")
    for header in ("id", "ce_id"):
        value = next((value for name, value in headers if name == header and value), None)
        if value is not None:
            key = value.decode(errors="replace")
            if len(key) > 200 or not key.isprintable() or "\ufffd" in key:
                raise Refused("id_invalid", f'The header "{header}" is not printable text of at most 200 characters.')
            return key
    # With a tab, which no id may have: else a producer's "0:7" would be taken for the message at that place.
    return f"{message.partition()}\t{message.offset()}"


def _keep_undelivered(message: Message, refusal: Refused) -> None:
    """Put it aside with the reason; once, however often it comes."""
    headers = [[name, value and b64encode(value).decode()] for name, value in _headers(message)]
    fetch_one(
        """INSERT INTO workflows_undeliveredmessage (topic, "partition", "offset", code, reason, key, value, headers)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s::jsonb)
           ON CONFLICT (topic, "partition", "offset") DO NOTHING RETURNING id""",
        (
            *_partition(message),
            message.offset(),
            refusal.code,
            str(refusal),
            message.key(),
            message.value(),
            json.dumps(headers),
        ),
    )


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    """Its headers; UNREADABLE where a name is not UTF-8, for Kafka's client then has none to give."""
    try:
        found: Any = message.headers() or []
    except (SystemError, UnicodeDecodeError):
        found = UNREADABLE
        message.set_headers(found)  # a second time it would not raise, but hand out a list that is broken in C
    return [(name, value) for name, value in found]


def _partition(message: Message) -> tuple[str, int]:
    return str(message.topic()), int(message.partition() or 0)


def _place(message: Message) -> str:
    return f"{message.topic()} {message.partition()}:{message.offset()}"


def _names(partitions: list[TopicPartition]) -> str:
    return ", ".join(f"{p.topic} {p.partition}" for p in partitions) or "no partition"


def _error_in(error: KafkaException) -> KafkaError:
    found: KafkaError = error.args[0]
    return found

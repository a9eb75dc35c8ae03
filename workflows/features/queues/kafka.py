"""KAFKA: messages of topics become signals or submissions.

For each message the signal is committed first, then the workflow woken, then the offset stored for the group. If the
consumer dies in between, the message comes again as a duplicate: nothing is lost, and nothing happens twice. A message
that cannot become a signal is stored as undelivered, in the same order. Submissions are stored in groups. A refused one
is stored (`refused`), or the broker has its dead letter, before its offset is stored.

While the database is away the message stays in hand, every partition is paused, and polling goes on. A consumer that
does not poll for `max.poll.interval.ms` loses its partitions to one that cannot reach the database either.
https://github.com/confluentinc/librdkafka/blob/master/INTRODUCTION.md#auto-offset-commit
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from django.db import connection

from workflows import failpoints
from workflows.api.problems import Problem
from workflows.engine.side_process_heartbeat import SideHeartbeat
from workflows.features.queues import kafka_messages, refused
from workflows.features.queues.kafka_dead_letters import DeadLetters
from workflows.features.queues.kafka_messages import partition_of, place_of, text_headers
from workflows.features.queues.submissions import GROUP, GROUP_BYTES, Door, Outcome, Sent
from workflows.ingress import messages
from workflows.models import SideProcess
from workflows.postgres.deadlines import DatabaseUnavailable, query_in_time
from workflows.postgres.jsonb import InputRefused
from workflows.stop_flag import Flag

logger = logging.getLogger(__name__)

# Kafka's own rule for a name, and short enough for a signal's source of 150 characters.
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,144}")

# Seconds of a poll; then the process checks whether it has to stop.
POLL_SECONDS = 0.5
# Seconds between commits of offsets. A crash repeats the messages since the last one, as duplicates.
COMMIT_INTERVAL = 1.0
# Seconds between two tries while the database is away, doubling. After a failover the consumer waits that long at most.
FIRST_DELAY = 0.5
MAX_DELAY = 1.0

# Errors that no reconnect fixes, though the client goes on trying: the process stops, so that people notice.
PERMANENT_ERRORS = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}

# The order above depends on these properties.
FIXED_PROPERTIES = {"enable.auto.commit": False, "enable.auto.offset.store": False, "enable.partition.eof": True}


class KafkaFailed(Exception):
    """Kafka refuses this consumer for good. The message is for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `consumekafka`. `properties` are librdkafka's; times are seconds."""

    brokers: str
    topics: Sequence[str]  # of signals
    submissions: Mapping[str, str] = field(default_factory=dict)  # a topic, and the API client that writes to it
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
        self._in_hand: deque[Message] = deque()  # received, but not yet stored in the database
        self._paused = False
        self._delay = 0.0
        self._uncommitted = False  # whether there are stored offsets that are not committed to the group
        self._commit_at = 0.0
        self._assigned = False
        self._at_end: set[tuple[str, int]] = set()
        self._logged_errors: set[int] = set()  # codes that were logged since a poll last succeeded
        self._permanent_error: KafkaError | None = None
        self._heartbeat = SideHeartbeat(SideProcess.Kind.CONSUMER, [*options.topics, *options.submissions])
        self._door = Door() if options.submissions else None
        try:
            self._client = Consumer(self._configuration(), logger=logger.getChild("client"))
            self._dead_letters = DeadLetters(options.brokers, options.properties) if options.submissions else None
        except KafkaException as error:
            raise KafkaFailed(f"Kafka's client refuses its configuration: {_error_in(error).str()}.") from None

    def run(self) -> None:
        """Process messages until `stopping` is set, then commit and leave the group. Raises KafkaFailed."""
        options, began = self.options, monotonic()
        name = f"onramp kafka {socket.gethostname()}:{os.getpid()}"
        connection.settings_dict.setdefault("OPTIONS", {}).setdefault("application_name", name)
        self._client.subscribe(
            [*options.topics, *options.submissions],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        try:
            while not self.stopping.is_set() and not (options.drain and self._drained()):
                if options.max_runtime is not None and monotonic() > began + options.max_runtime:
                    break
                self._heartbeat.beat()
                self.process_next()
        except BaseException as error:
            self._heartbeat.stop(type(error).__name__)
            raise
        else:
            self._heartbeat.stop()
        finally:
            self._client.close()  # revokes the partitions, and so commits
            if self._door:
                self._door.close()
            counts = ", ".join(f"{number} {what}" for what, number in sorted(self.counts.items()))
            logger.info("stopped: %s", counts or "no messages")

    def process_next(self) -> bool:
        """Process one message, or a group of submissions. False when none came, or the database is away."""
        message = self._next_message()
        self._commit_periodically()
        if message is None:
            return False
        left = self._store_group(self._group(message)) if self._is_submission(message) else self._store_one(message)
        if left:
            self._in_hand.extendleft(reversed(left))
            self._wait(left[0])
            return False
        self._heartbeat.message()
        if self._delay:
            self._delay = 0.0
            logger.info("the database is back")
        return True

    # --- A message ------------------------------------------------------------------------------

    def _next_message(self) -> Message | None:
        if self._in_hand:
            return self._in_hand.popleft()
        if self._paused:
            self._client.resume(self._client.assignment())
            self._paused = False
        return self._poll(POLL_SECONDS)

    def _store_one(self, message: Message) -> Sequence[Message]:
        """Handle a message and store its offset. Returns the message if the database is away."""
        try:
            self._handle(message)
        except DatabaseUnavailable:
            return [message]
        failpoints.reach("after_commit", "message")
        self._store_offset(message)
        return []

    def _handle(self, message: Message) -> None:
        """Store the message as a signal, or as undelivered. Raises DatabaseUnavailable: handle it again later."""
        value = message.value()
        if value is None:
            self._count("tombstones", message)  # no signal, and nothing that a person could look at
            return
        arrived = kafka_messages.arrived(message, value)
        try:
            stored = query_in_time(lambda: messages.deliver(arrived))
        except (InputRefused, ArithmeticError, LookupError, TypeError, ValueError) as error:
            # Other errors are caught as a last resort: no message may block its partition for ever.
            unreadable = InputRefused("unreadable", "It cannot be read: see the log.")
            refused = error if isinstance(error, InputRefused) else unreadable
            if refused is unreadable:
                logger.error("%s cannot be read", place_of(message), exc_info=error)
            query_in_time(lambda: messages.keep_undelivered(arrived, refused))
            self.counts["undelivered"] += 1
            logger.warning("undelivered %s: %s", place_of(message), refused.code)
        else:
            self._count("ignored" if stored is None else "signals" if stored else "duplicates", message)

    def _store_offset(self, message: Message) -> None:
        """Store the offset of a finished message: after the database's commit, never before."""
        try:
            self._client.store_offsets(message=message)
            self._uncommitted = True
        except KafkaException as error:
            # Another member has the partition now, and gets the message again, as a duplicate.
            logger.info("%s belongs to another member by now: %s", place_of(message), _error_in(error).name())

    def _count(self, what: str, message: Message) -> None:
        self.counts[what] += 1
        logger.debug("%s: %s", place_of(message), what)

    # --- Submissions ----------------------------------------------------------------------------

    def _is_submission(self, message: Message) -> bool:
        return message.topic() in self.options.submissions

    def _group(self, first: Message) -> list[Message]:
        """The submissions that have already arrived, up to the size of a group."""
        group, size = [first], len(first)
        while len(group) < GROUP and size < GROUP_BYTES:
            another = self._in_hand.popleft() if self._in_hand else self._poll(0)
            if another is None:
                break
            if not self._is_submission(another):
                self._in_hand.appendleft(another)
                break
            group.append(another)
            size += len(another)
        return group

    def _store_group(self, group: Sequence[Message]) -> Sequence[Message]:
        """Store submissions; return those that could not be decided, with all later ones of their partitions.

        The later ones may be stored already: they come again as replays.
        """
        assert self._door
        sent = [
            Sent(self.options.submissions[str(each.topic())], text_headers(each), each.value() or b"") for each in group
        ]
        outcomes = self._door.enter(sent)
        dead = self._keep_or_leave(group, sent, outcomes)
        failpoints.reach("after_commit", "submissions")
        left: list[Message] = []
        blocked: set[tuple[str, int]] = set()
        for message, outcome in zip(group, outcomes, strict=True):
            if outcome is Outcome.LATER or (isinstance(outcome, Problem) and place_of(message) not in dead):
                blocked.add(partition_of(message))
            if partition_of(message) in blocked:
                left.append(message)
                continue
            self._store_offset(message)
            if isinstance(outcome, Problem):
                self._count("refused", message)
                logger.warning("refused %s: %s", place_of(message), outcome.code)
            else:
                self._count(outcome.value, message)
        return left

    def _keep_or_leave(
        self, group: Sequence[Message], sent: Sequence[Sent], outcomes: Sequence[Outcome | Problem]
    ) -> set[str]:
        """Store refused submissions, or send them to the dead letters; return the positions of those that are done."""
        each_of = zip(group, sent, outcomes, strict=True)
        dead = [(each, of, problem) for each, of, problem in each_of if isinstance(problem, Problem)]

        def write(numbers: Sequence[int]) -> set[int]:
            assert self._dead_letters
            written = self._dead_letters.write([(dead[number][0], dead[number][2]) for number in numbers])
            return {number for number in numbers if place_of(dead[number][0]) in written}

        refusals = [(kafka_messages.came(message, of), problem) for message, of, problem in dead]
        return {place_of(dead[number][0]) for number in refused.keep_or_leave(refusals, write)}

    # --- The database is away -------------------------------------------------------------------

    def _wait(self, message: Message) -> None:
        """Poll for a while with every partition paused, so that the group sees that this consumer is alive."""
        if not self._delay:
            written = self._dead_letters is None or self._dead_letters.are_written
            why = "the database is away" if written else "dead letters cannot be written"
            logger.warning("%s: %s and what comes after it wait", why, place_of(message))
        self._delay = min(self._delay * 2, MAX_DELAY) or FIRST_DELAY
        if not self._paused:
            self._client.pause(self._client.assignment())
            self._paused = True
        deadline = monotonic() + self._delay
        while (left := deadline - monotonic()) > 0 and not self.stopping.is_set():
            if another := self._poll(min(left, POLL_SECONDS)):  # from a partition that was assigned in the meantime
                self._in_hand.append(another)
                self._client.pause([TopicPartition(*partition_of(another))])

    # --- The group ------------------------------------------------------------------------------

    def _poll(self, seconds: float) -> Message | None:
        """The next message, if one comes within `seconds`. The client's callbacks run here. Raises KafkaFailed."""
        message = self._client.poll(seconds)
        error = message.error() if message is not None else None
        if message is not None and error is None:
            self._at_end.discard(partition_of(message))
            self._logged_errors.clear()
        elif message is not None and error is not None and error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add(partition_of(message))
            self._logged_errors.clear()
        elif error is not None:
            self._on_error(error)
        if self._permanent_error:
            raise KafkaFailed(f"Kafka refuses this consumer: {self._permanent_error.str()}")
        return message if error is None else None

    def _commit_periodically(self) -> None:
        if self._uncommitted and monotonic() > self._commit_at:
            self._uncommitted = False
            self._commit_at = monotonic() + COMMIT_INTERVAL
            self._commit(asynchronous=True)

    def _commit(self, *, asynchronous: bool) -> None:
        try:
            self._client.commit(asynchronous=asynchronous)  # type: ignore[call-overload]
        except KafkaException as error:
            self._on_commit(_error_in(error), [])

    def _drained(self) -> bool:
        ends = ((p.topic, p.partition) in self._at_end for p in self._client.assignment())
        return self._assigned and not self._in_hand and all(ends)

    def _on_assign(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        logger.info("given %s", _partition_names(partitions))
        self._assigned = True

    def _on_revoke(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        """Commit before the partitions are taken away. Their messages in hand go to another consumer."""
        logger.info("giving back %s", _partition_names(partitions))
        self._drop(partitions)
        self._commit(asynchronous=False)

    def _on_lost(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        """Another member has the partitions already; it is too late to commit."""
        logger.warning("lost %s", _partition_names(partitions))
        self._drop(partitions)

    def _drop(self, partitions: list[TopicPartition]) -> None:
        if self._paused:
            self._client.resume(partitions)  # otherwise they would stay paused if they came back
        gone = {(p.topic, p.partition) for p in partitions}
        self._at_end -= gone
        self._in_hand = deque(message for message in self._in_hand if partition_of(message) not in gone)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is not None and error.code() != KafkaError._NO_OFFSET:
            self._uncommitted = True  # again, next time
            self._on_error(error)

    def _on_error(self, error: KafkaError) -> None:
        """Log an error once until a poll succeeds again: the client repeats it many times a second."""
        if error.fatal() or error.code() in PERMANENT_ERRORS:
            self._permanent_error = error
        elif error.code() not in self._logged_errors:
            self._logged_errors.add(error.code())
            logger.warning("Kafka: %s (%s)", error.str(), error.name())

    def _configuration(self) -> dict[str, Any]:
        return {
            "client.id": "onramp",
            "auto.offset.reset": "earliest",  # a new group starts with the oldest message, rather than miss one
            "log_level": 2,  # the client reports the rest to `_on_error` as well
            **self.options.properties,
            "bootstrap.servers": self.options.brokers,
            "group.id": self.options.group,
            **FIXED_PROPERTIES,
            "error_cb": self._on_error,
            "on_commit": self._on_commit,
        }


def _partition_names(partitions: list[TopicPartition]) -> str:
    return ", ".join(f"{p.topic} {p.partition}" for p in partitions) or "no partition"


def _error_in(error: KafkaException) -> KafkaError:
    found: KafkaError = error.args[0]
    return found

"""DEAD LETTERS of a topic of submissions: a refused message goes to `<topic>.dead` unchanged, with the reason."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from workflows.api.problems import Problem
from workflows.features.queues.kafka_messages import place_of, raw_headers
from workflows.features.queues.submissions import PROBLEM, reason

logger = logging.getLogger(__name__)

SUFFIX = ".dead"

# Seconds for the brokers to acknowledge dead letters. Longer than the election of a leader.
WRITTEN_WITHIN = 15.0

# A value that one topic took must fit another, if the brokers allow it.
_LARGEST = 100_000_000


class DeadLetters:
    """Writes dead letters. `are_written`: the brokers have acknowledged all of the last ones."""

    def __init__(self, brokers: str, properties: Mapping[str, Any]) -> None:
        self.are_written = True
        self._producer = Producer(
            {
                "client.id": "onramp",
                "log_level": 2,
                "message.max.bytes": _LARGEST,
                **properties,  # the client ignores those of a consumer
                "bootstrap.servers": brokers,
                "enable.idempotence": True,
                "delivery.timeout.ms": int(WRITTEN_WITHIN * 1000),
            },
            logger=logger.getChild("client"),
        )

    def write(self, dead: Sequence[tuple[Message, Problem]]) -> set[str]:
        """Write dead letters; return the positions of those that the brokers have acknowledged."""
        written: set[str] = set()
        for message, problem in dead:
            self._produce(message, problem, message.value(), written)
        if dead:
            self._producer.flush(WRITTEN_WITHIN + 5)
        self.are_written = len(written) == len(dead)
        return written

    def _produce(self, message: Message, problem: Problem, value: bytes | None, written: set[str]) -> None:
        place = place_of(message)

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is None:
                written.add(place)
            elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE and value is not None:
                # Send the position without the value: the original topic has the value while it retains messages.
                self._produce(message, problem, None, written)
            else:
                logger.warning("the dead letter of %s: %s", place, error.name())

        ours = {PROBLEM: reason(problem).encode(), "origin": place.encode()}
        topic = f"{message.topic()}{SUFFIX}"
        theirs = [(name, each) for name, each in raw_headers(message) if name not in ours]
        try:
            self._producer.produce(
                topic, value, message.key(), headers=[*theirs, *ours.items()], on_delivery=on_delivery
            )
        except BufferError as error:
            logger.warning("the dead letter of %s: %s", place, error)
        except KafkaException as error:
            on_delivery(error.args[0], message)

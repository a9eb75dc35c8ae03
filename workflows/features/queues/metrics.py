"""The metrics of undelivered messages and refused submissions."""

from __future__ import annotations

from collections.abc import Iterator

from workflows.features.queues.undelivered import Numbers
from workflows.health.families import Family


def families(numbers: Numbers) -> Iterator[Family]:
    yield Family(
        "onramp_undelivered_messages",
        "Messages that could not be delivered, and that nobody has redelivered or discarded.",
        ["topic"],
        [([topic], number) for topic, number in numbers.by_topic.items()],
    )
    yield Family(
        "onramp_refused_left_with_broker",
        "Submissions that a queue's door refused, and that only the broker's dead letters have.",
        ["queue"],
        [([queue], number) for queue, number in numbers.left_by_queue.items()],
    )

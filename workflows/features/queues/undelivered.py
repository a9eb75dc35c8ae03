"""UNDELIVERED: counts of open messages, by topic or source of webhooks, that could not be delivered.

Also counts the refused submissions: those that are stored here, and those that only the broker has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workflows.health import bounded
from workflows.health.bounded import Count, Link
from workflows.models import UndeliveredMessage
from workflows.models.undelivered_message import REFUSED
from workflows.postgres.often import fetch_all
from workflows.postgres.skip_scan import skip_scan

SEE_MESSAGES = "workflows.view_undeliveredmessage"

FOUND = f"""
    WITH RECURSIVE {skip_scan("open", "workflows_undeliveredmessage", "state = ''", "topic")}
    SELECT topic, messages.number, coalesce(broker.number, 0) FROM open CROSS JOIN LATERAL (
           SELECT count(*) AS number
             FROM (SELECT FROM workflows_undeliveredmessage m WHERE m.state = '' AND m.topic = open.topic
                      AND m.left_with_broker = 0 LIMIT %(limit)s) each) messages
      LEFT JOIN LATERAL (
           SELECT left_with_broker AS number FROM workflows_undeliveredmessage m
            WHERE m.topic = open.topic AND m."partition" = -1 AND m."offset" = -1 AND m.state = '') broker ON true
     ORDER BY topic"""  # noqa: S608 (ours)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Counts of open messages. Each count by topic stops at `bounded.limit` and one.

    `by_topic` has topics, `webhook:` and a source, or `submissions:` and a topic or queue. `left_by_queue` counts
    refused submissions that only the broker's dead letters have, by topic or queue, until they are settled.
    """

    by_topic: Mapping[str, int]
    left_by_queue: Mapping[str, int]

    @property
    def messages(self) -> int:
        return sum(self.by_topic.values()) - self.refused

    @property
    def refused(self) -> int:
        return sum(number for topic, number in self.by_topic.items() if topic.startswith(REFUSED))

    @property
    def left_with_broker(self) -> int:
        return sum(self.left_by_queue.values())


def numbers() -> Numbers:
    found = fetch_all(FOUND, {"limit": bounded.limit() + 1})
    return Numbers(
        {topic: number for topic, number, _ in found if number},
        {topic.removeprefix(REFUSED): left for topic, _, left in found if left},
    )


def open_values(column: str) -> list[str]:
    """The distinct values of a column among the newest open messages."""
    newest = UndeliveredMessage.objects.filter(state="").order_by("-pk").values_list(column, flat=True)
    return sorted(set(newest[: bounded.limit()]))


def need_a_person() -> list[tuple[str, Link]]:
    """A sentence for each topic or source, with the list where a person redelivers or discards the messages."""
    found = numbers()
    told = [(_sentence(topic, Count(number, _of(topic))), _of(topic)) for topic, number in found.by_topic.items()]
    for queue, number in found.left_by_queue.items():
        submissions = "refused submission" if number == 1 else "refused submissions"
        sentence = f"Only the broker's dead letters have {number:,} {submissions} of {queue}."
        told.append((sentence, _of(f"{REFUSED}{queue}")))
    return told


def _of(topic: str) -> Link:
    return Link("undeliveredmessage", filters=(("state", "open"), ("topic", topic)))


def _sentence(topic: str, count: Count) -> str:
    if topic.startswith(REFUSED):
        what = "submission" if count.number == 1 else "submissions"
        return f"{count} {what} of {topic.removeprefix(REFUSED)} {'was' if count.number == 1 else 'were'} refused."
    _, is_webhook, source = topic.partition(":")
    whose = f"of the source {source}" if is_webhook else f"of the topic {topic}"
    return f"{count} {'message' if count.number == 1 else 'messages'} {whose} could not be delivered."

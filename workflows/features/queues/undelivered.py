"""UNDELIVERED: how many messages of each topic, or source of webhooks, could not be delivered and are nobody's yet.

And how many submissions the doors of queues have refused: those that are kept here, and those that the broker has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workflows.health import bounded
from workflows.health.bounded import Count, Link
from workflows.models import UndeliveredMessage
from workflows.models.undelivered_message import REFUSED
from workflows.postgres.skip_scan import skip_scan
from workflows.postgres.statements import fetch_all

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


def by_topic() -> dict[str, int]:
    """How many are open, by topic, or `webhook:` and a source, or `submissions:` and a topic or queue; one above
    `bounded.limit` if there are more."""
    return {topic: number for topic, number, _ in _found() if number}


def left_with_broker() -> dict[str, int]:
    """How many refused submissions only the broker's dead letters have, by topic or queue, until it is settled."""
    return {topic.removeprefix(REFUSED): left for topic, _, left in _found() if left}


def _found() -> list[tuple[Any, ...]]:
    return fetch_all(FOUND, {"limit": bounded.limit() + 1})


@dataclass(frozen=True, slots=True)
class Numbers:
    """How many are open, of all topics and sources; of each no more are counted than `by_topic` does."""

    messages: int
    refused: int
    left_with_broker: int


def numbers() -> Numbers:
    found = _found()
    refused = sum(number for topic, number, _ in found if topic.startswith(REFUSED))
    messages = sum(number for _, number, _ in found)
    return Numbers(messages - refused, refused, sum(left for *_, left in found))


def open_values(column: str) -> list[str]:
    """The different values of a column of what is open, of those that are looked at."""
    newest = UndeliveredMessage.objects.filter(state="").order_by("-pk").values_list(column, flat=True)
    return sorted(set(newest[: bounded.limit()]))


def need_a_person() -> list[tuple[str, Link]]:
    """A sentence for each topic or source, and where to redeliver or discard them."""
    found = _found()
    told = [(_sentence(topic, Count(number, _of(topic))), _of(topic)) for topic, number, _ in found if number]
    for topic, _, left in found:
        if left:
            submissions = "refused submission" if left == 1 else "refused submissions"
            queue = topic.removeprefix(REFUSED)
            told.append((f"Only the broker's dead letters have {left:,} {submissions} of {queue}.", _of(topic)))
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

"""UNDELIVERED: how many messages of each topic, or source of webhooks, could not be delivered and are nobody's yet."""

from __future__ import annotations

from workflows.health import bounded
from workflows.health.bounded import Count, Link
from workflows.postgres.skip_scan import skip_scan
from workflows.postgres.statements import fetch_all

SEE_MESSAGES = "workflows.view_undeliveredmessage"

FOUND = f"""
    WITH RECURSIVE {skip_scan("open", "workflows_undeliveredmessage", "state = ''", "topic")}
    SELECT topic, messages.number FROM open CROSS JOIN LATERAL (
           SELECT count(*) AS number
             FROM (SELECT FROM workflows_undeliveredmessage m WHERE m.state = '' AND m.topic = open.topic
                    LIMIT %(limit)s) each) messages
     ORDER BY topic"""  # noqa: S608 (ours)


def by_topic() -> dict[str, int]:
    """How many are open, by topic, or `webhook:` and a source; one above `bounded.limit` if there are more."""
    return dict(fetch_all(FOUND, {"limit": bounded.limit() + 1}))


def number() -> int:
    """How many are open, of all topics and sources; of each no more are counted than `by_topic` does."""
    return sum(by_topic().values())


def need_a_person() -> list[tuple[str, Link]]:
    """A sentence for each topic or source, and where to redeliver or discard them."""
    link = Link("undeliveredmessage", filters=(("state", "open"),))
    return [(_sentence(topic, Count(number, link)), link) for topic, number in by_topic().items()]


def _sentence(topic: str, count: Count) -> str:
    _, is_webhook, source = topic.partition(":")
    whose = f"of the source {source}" if is_webhook else f"of the topic {topic}"
    return f"{count} {'message' if count.number == 1 else 'messages'} {whose} could not be delivered."

"""A consumer of submissions of Kafka in this process: what is refused is kept, and dead letters that are not taken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from pytest_django import Settings

from tests import engine
from tests.kafka import Cluster
from workflows.features.queues import refused
from workflows.features.queues.kafka import Options, Relay
from workflows.ingress import api_keys
from workflows.models import UndeliveredMessage, Workflow
from workflows.stop_flag import Flag

pytestmark = engine.ENGINE

PRODUCE = 0  # https://kafka.apache.org/protocol#protocol_api_keys


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.close()


@pytest.fixture
def drain(cluster: Cluster, settings: Settings) -> Callable[..., Relay]:
    """Consume what was sent to a topic of the test's own, to its end; the first tries to write fail with `error`."""
    engine.define([])
    settings.SUBMISSION_WORKFLOW = "test"
    settings.REFUSED_SUBMISSIONS_KEPT = 0
    api_keys.create("shop")

    def run(*sent: tuple[bytes, bytes], error: int, times: int = 1) -> Relay:
        topic = f"t-{uuid4().hex[:8]}"
        for each in (topic, f"{topic}.dead"):
            cluster.create_topic(each)
        for key, body in sent:
            cluster.send(
                topic, body, **{"Idempotency-Key": key, "Content-Type": None, "problem": b"of an earlier refusal"}
            )
        cluster.refuse(PRODUCE, error, times)
        options = Options(brokers=cluster.brokers, topics=[], submissions={topic: "shop"}, group=topic, drain=True)
        relay = Relay(options, Flag())
        relay.run()
        assert cluster.committed(topic, group=topic) == len(sent)
        return relay

    return run


def dead(relay: Relay, cluster: Cluster) -> list[Message]:
    (topic,) = relay.options.submissions
    config = {"bootstrap.servers": cluster.brokers, "group.id": "reader", "enable.partition.eof": True, "log_level": 0}
    reader = Consumer({**config, "enable.auto.commit": False})
    reader.assign([TopicPartition(f"{topic}.dead", 0, OFFSET_BEGINNING)])
    found = []
    while (message := reader.poll(10)) is not None and not message.error():  # one without a value is false
        found.append(message)
    reader.close()
    return found


def test_what_is_refused_waits_with_what_comes_after_it_until_its_dead_letter_is_written(
    drain: Callable[..., Relay], cluster: Cluster
) -> None:
    before, after = (str(uuid4()).encode() for _ in range(2))
    relay = drain((before, b"{}"), (b"", b"{"), (after, b"{}"), error=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert relay.counts["refused"] == 1
    assert [each.value() for each in dead(relay, cluster)] == [b"{"]
    assert Workflow.objects.count() == 2


def test_what_is_too_large_for_the_dead_letters_is_there_with_its_place(
    drain: Callable[..., Relay], cluster: Cluster
) -> None:
    relay = drain((b"", b"{"), error=KafkaError.MSG_SIZE_TOO_LARGE)
    (letter,) = dead(relay, cluster)
    headers: dict[str, Any] = dict(letter.headers() or [])
    assert len(letter.headers() or []) == len(headers), "each once, though it was refused before"
    (topic,) = relay.options.submissions
    assert (letter.value(), headers["origin"]) == (None, f"{topic} 0:0".encode())
    assert json.loads(headers["problem"])["code"] == "idempotency_key_missing"
    assert relay.counts == {"refused": 1}


def test_what_is_refused_is_kept_and_what_is_over_the_limit_is_a_dead_letter(
    drain: Callable[..., Relay], cluster: Cluster, settings: Settings
) -> None:
    settings.REFUSED_SUBMISSIONS_KEPT = 1
    key = str(uuid4()).encode()
    relay = drain((key, b"{"), (b"", b"{}"), (str(uuid4()).encode(), b"{}"), error=KafkaError.NO_ERROR)
    assert relay.counts == {"refused": 2, "submissions": 1}
    assert [each.value() for each in dead(relay, cluster)] == [b"{}"]
    row, left = UndeliveredMessage.objects.order_by("pk")
    (topic,) = relay.options.submissions
    assert (row.queue, row.partition, row.offset, str(row.idempotency_key)) == (topic, 0, 0, key.decode())
    assert (row.code, row.sent_at_ms > 0, refused.opened(row).body) == ("malformed_json", True, b"{")
    assert (left.topic, left.left_with_broker) == (row.topic, 1)

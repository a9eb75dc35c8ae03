"""A topic that was deleted and created again: its messages have the places of others, and are none of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import Consume
from tests.acceptance.messages import fact, told
from tests.kafka import Cluster
from workflows.models import Signal, UndeliveredMessage

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def created_again(topic: str) -> Iterator[Cluster]:
    """A cluster where the topic has just been created. (The one of the other tests deletes none.)"""
    cluster = Cluster()
    cluster.create_topic(topic)
    yield cluster
    cluster.close()


def drain(consume: Consume, cluster: Cluster, **environ: str) -> str:
    relay = consume("--drain", KAFKA_BROKERS=cluster.brokers, **environ)
    assert relay.wait() == 0, relay.output
    return relay.output


def read_again(consume: Consume, cluster: Cluster) -> str:
    """Every message once more, by a group that has read none."""
    return drain(consume, cluster, KAFKA_GROUP="another")


@pytest.mark.parametrize("says", ["the same", "something else"])
def test_its_messages_are_no_duplicates_of_those_before(
    says: str, cluster: Cluster, created_again: Cluster, topic: str, consume: Consume
) -> None:
    cluster.send(topic, fact())
    drain(consume, cluster)
    created_again.send(topic, fact() if says == "the same" else fact("parcel.sent"))
    assert "stopped: 1 signals" in drain(consume, created_again)
    assert Signal.objects.count() == 2
    for each in (cluster, created_again):
        assert "stopped: 1 duplicates" in read_again(consume, each)
    assert Signal.objects.count() == 2


def test_what_it_cannot_deliver_is_kept_beside_what_was_undelivered_there_before(
    cluster: Cluster, created_again: Cluster, topic: str, consume: Consume
) -> None:
    for each in (cluster, created_again):
        each.send(topic, b"poison")
        each.send(topic, fact(linking_id=None))
        for _ in range(2):
            drain(consume, each)
        read_again(consume, each)
    assert UndeliveredMessage.objects.count() == 4


def test_an_id_of_the_producers_is_the_same_whenever_it_is_sent(
    cluster: Cluster, created_again: Cluster, topic: str, consume: Consume
) -> None:
    for each in (cluster, created_again):
        each.send(topic, fact(), id="e-1")
        drain(consume, each)
    assert told() == [("account.created", "e-1")]

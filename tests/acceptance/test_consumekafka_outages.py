"""`manage.py consumekafka` stops, is killed, or finds the database or Kafka away: each message counts, and once."""

import json
import re
import signal
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError
from django.db import connection

from tests.acceptance.conftest import Consume
from tests.acceptance.messages import fact, told, until_told
from tests.kafka import Cluster
from tests.processes import until
from tests.servers import Proxy, database_url
from workflows.models import Signal, UndeliveredMessage

pytestmark = pytest.mark.django_db(transaction=True)

OFFSET_COMMIT = 8  # https://kafka.apache.org/protocol#protocol_api_keys


# --- Stopping, crashing, starting again ----------------------------------------------------------------------------


def test_told_to_stop_it_commits_and_the_next_goes_on_from_there(
    cluster: Cluster, topic: str, consume: Consume
) -> None:
    for _ in range(3):  # the first is committed at once, the others are not before a second has passed
        cluster.send(topic, fact())
    relay = consume()
    until_told(3, relay)
    relay.signal(signal.SIGTERM)
    assert relay.wait() == 0, relay.output
    assert cluster.committed(topic, group=topic) == 3
    assert "Traceback" not in relay.output

    cluster.send(topic, fact("last"))
    again = consume("--drain")
    assert again.wait() == 0, again.output
    assert [name for name, _ in told()] == [*["account.created"] * 3, "last"]
    assert "stopped: 1 signals" in again.output, "nothing came again"


def test_what_is_done_is_committed_while_it_runs(cluster: Cluster, topic: str, consume: Consume) -> None:
    cluster.send(topic, fact())
    relay = consume()
    until(lambda: cluster.committed(topic, group=topic) == 1, what=lambda: relay.output)
    assert relay.process.poll() is None
    with connection.cursor() as cursor:
        ours = "application_name ~ '^onramp kafka ' AND datname = current_database()"
        cursor.execute(f"SELECT application_name FROM pg_stat_activity WHERE {ours}")
        assert [name.rpartition(":")[2] for (name,) in cursor.fetchall()] == [str(relay.pid)]


@pytest.mark.parametrize("value", [fact(), b"poison"], ids=["signal", "undelivered"])
def test_killed_before_its_offset_is_committed_a_message_comes_again_and_counts_once(
    cluster: Cluster, topic: str, consume: Consume, value: Any
) -> None:
    cluster.send(topic, value)
    relay = consume(ONRAMP_FAILPOINT="after_commit:message")
    assert relay.wait() == -signal.SIGKILL, relay.output
    assert Signal.objects.count() + UndeliveredMessage.objects.count() == 1
    assert cluster.committed(topic, group=topic) is None

    again = consume("--drain")
    assert again.wait() == 0, again.output
    assert Signal.objects.count() + UndeliveredMessage.objects.count() == 1
    assert cluster.committed(topic, group=topic) == 1
    assert f"stopped: 1 {'duplicates' if isinstance(value, dict) else 'undelivered'}" in again.output


def test_two_members_share_the_partitions_and_hand_them_over(cluster: Cluster, topic: str, consume: Consume) -> None:
    wide = f"{topic}-wide"
    cluster.create_topic(wide, 2)
    first = consume("--topic", wide)
    until(lambda: f"given {wide} 0, {wide} 1" in first.output, what=lambda: first.output)
    second = consume("--topic", wide)
    until(lambda: f"given {wide}" in second.output, what=lambda: second.output)
    for partition in (0, 1):
        cluster.send(wide, fact(), partition=partition)
    until_told(2, first)
    first.signal(signal.SIGTERM)
    assert first.wait() == 0, first.output
    until(lambda: f"given {wide} 0, {wide} 1" in second.output, what=lambda: second.output)
    cluster.send(wide, fact(), partition=0)
    cluster.send(wide, fact(), partition=1)
    until_told(4, second)
    second.interrupt()
    assert second.wait() == 0, second.output
    # On a slow machine the group may take a member for dead in between; then a message comes again, as a duplicate.
    assert re.search(r"stopped: .*\b1 signals", first.output), first.output
    assert re.search(r"stopped: .*\b3 signals", second.output), second.output
    assert Signal.objects.count() == 4, "and nothing came twice"


# --- The database is away -------------------------------------------------------------------------------------------


def test_a_message_waits_for_the_database_and_its_offset_with_it(
    cluster: Cluster, topic: str, consume: Consume, proxy: Proxy
) -> None:
    """For longer than a member may go without polling: the group takes it for alive all the same."""
    options = {**json.loads(cluster.OPTIONS), "session.timeout.ms": 4000, "max.poll.interval.ms": 4000}
    relay = consume(DATABASE_URL=database_url(port=proxy.port), KAFKA_OPTIONS=json.dumps(options))
    cluster.send(topic, fact("before"))
    until_told(1, relay)
    until(lambda: cluster.committed(topic, group=topic) == 1, what=lambda: relay.output)
    proxy.cut()
    for name in ("first", "second"):
        cluster.send(topic, fact(name))
    cluster.send(topic, b"poison")
    until(lambda: "the database is away" in relay.output, what=lambda: relay.output)
    time.sleep(5)
    assert Signal.objects.count() == 1
    assert cluster.committed(topic, group=topic) == 1
    proxy.connect()
    until(lambda: cluster.committed(topic, group=topic) == 4, what=lambda: relay.output)
    assert [name for name, _ in told()] == ["before", "first", "second"], "none lost, and in their order"
    assert UndeliveredMessage.objects.count() == 1
    assert relay.output.count("the database is away") == relay.output.count("the database is back") == 1
    assert relay.output.count("The database did not answer") < 10
    for trouble in ("lost", "giving back", "MAX_POLL"):
        assert trouble not in relay.output


def test_partitions_that_went_and_came_back_while_the_database_was_away_are_read_on(
    cluster: Cluster, topic: str, consume: Consume, proxy: Proxy
) -> None:
    """The client leaves a partition paused that it has given back."""
    flapping = '{"session.timeout.ms": 1000, "heartbeat.interval.ms": 3000}'  # lost a second after it was given
    relay = consume(DATABASE_URL=database_url(port=proxy.port), KAFKA_OPTIONS=flapping)
    proxy.cut()
    cluster.send(topic, fact())
    until(lambda: "lost" in relay.output.partition("the database is away")[2], what=lambda: relay.output)
    proxy.connect()
    until_told(1, relay)


def test_told_to_stop_it_does_not_wait_for_the_database_and_commits_nothing(
    cluster: Cluster, topic: str, consume: Consume, proxy: Proxy
) -> None:
    cluster.send(topic, fact())
    relay = consume(DATABASE_URL=database_url(port=proxy.port))
    proxy.cut()
    until(lambda: "the database is away" in relay.output, what=lambda: relay.output)
    relay.signal(signal.SIGTERM)
    assert relay.wait(10) == 0, relay.output
    assert cluster.committed(topic, group=topic) is None
    assert not Signal.objects.exists()


# --- Kafka is away --------------------------------------------------------------------------------------------------


def test_a_broker_that_is_away_is_told_once_and_then_it_goes_on(cluster: Cluster, topic: str, consume: Consume) -> None:
    relay = consume()
    cluster.send(topic, fact("before"))
    until_told(1, relay)
    cluster.cut()
    try:
        until(lambda: "_ALL_BROKERS_DOWN" in relay.output, what=lambda: relay.output)
        time.sleep(1)
    finally:
        cluster.restore()
    assert relay.output.count("_TRANSPORT") == relay.output.count("_ALL_BROKERS_DOWN") == 1
    cluster.send(topic, fact("after"))
    until_told(2, relay)
    relay.signal(signal.SIGTERM)
    assert relay.wait(10) == 0, relay.output
    assert cluster.committed(topic, group=topic) == 2


def test_what_no_waiting_mends_ends_it_with_a_sentence(cluster: Cluster, topic: str, consume: Consume) -> None:
    cluster.send(topic, fact())
    cluster.refuse(OFFSET_COMMIT, KafkaError.GROUP_AUTHORIZATION_FAILED, 3)
    relay = consume()
    assert relay.wait() == 1, relay.output
    assert "CommandError: Kafka refuses this consumer: " in relay.output
    assert "Traceback" not in relay.output
    assert told() == [("account.created", "0\t0")]

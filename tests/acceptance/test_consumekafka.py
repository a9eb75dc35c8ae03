"""`manage.py consumekafka`, as an operator starts and stops it: real processes, Kafka's real protocol."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest
from confluent_kafka import KafkaError
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from tests.kafka import Cluster, Consumekafka
from tests.processes import environment, until
from tests.servers import ROOT, Proxy, database_url
from tests.workflows import rows
from workflows.models import Signal, UndeliveredMessage, Workflow

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]

CANARY = "canary-in-the-payload"
OFFSET_COMMIT = 8  # https://kafka.apache.org/protocol#protocol_api_keys


class Consume(Protocol):
    def __call__(self, *arguments: str, **environ: str) -> Consumekafka: ...


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.close()


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A topic of the test's own, of one partition."""
    name = f"facts-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name)
    return name


@pytest.fixture
def consume(cluster: Cluster, topic: str, tmp_path: Path) -> Iterator[Consume]:
    """Starts `manage.py consumekafka` for the test's topic, in a group called like it; ends all it has started."""
    started: list[Consumekafka] = []

    def start(*arguments: str, **environ: str) -> Consumekafka:
        kafka = {"KAFKA_BROKERS": cluster.brokers, "KAFKA_TOPICS": topic, "KAFKA_GROUP": topic}
        environ = {**kafka, "KAFKA_OPTIONS": cluster.OPTIONS, **environ}
        started.append(Consumekafka(tmp_path / f"consumekafka-{len(started)}.log", (), arguments, **environ))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            each.kill()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as proxy:
        yield proxy


def fact(name: str = "account.created", **fields: Any) -> dict[str, Any]:
    return {"name": name, "payload": {"account": CANARY}, **({"linking_id": "L-1"} | fields)}


def waiting(**fields: Any) -> Workflow:
    later = timezone.now() + timedelta(hours=1)
    return rows.workflow(**{"invisible_until": later, "wake_on": ["account.created"], **fields})


def is_due(workflow: Workflow) -> bool:
    return Workflow.objects.filter(pk=workflow.pk, invisible_until__lte=timezone.now()).exists()


def told() -> list[tuple[str, str]]:
    return list(Signal.objects.order_by("id").values_list("name", "dedupe_key"))


def until_told(count: int, relay: Consumekafka) -> None:
    until(lambda: Signal.objects.count() >= count, what=lambda: relay.output)


# --- What becomes of a message --------------------------------------------------------------------------------------


def test_messages_become_signals_and_wake_whom_they_are_for(cluster: Cluster, topic: str, consume: Consume) -> None:
    linked, addressed = waiting(linking_id="L-1"), waiting()
    others = [waiting(linking_id="L-2"), waiting(linking_id="L-1", wake_on=["parcel.sent"])]
    cluster.send(topic, fact())
    cluster.send(topic, {"name": "account.created", "workflow": str(addressed.idempotency_key)})
    relay = consume("--drain")
    assert relay.wait() == 0, relay.output
    assert list(
        Signal.objects.order_by("id").values_list("source", "dedupe_key", "name", "linking_id", "workflow_id")
    ) == [
        (f"kafka:{topic}", "0\t0", "account.created", "L-1", None),
        (f"kafka:{topic}", "0\t1", "account.created", None, addressed.pk),
    ]
    assert list(Signal.objects.order_by("id").values_list("payload", flat=True)) == [{"account": CANARY}, {}]
    assert is_due(linked)
    assert is_due(addressed)
    assert not any(map(is_due, others))
    assert cluster.committed(topic, group=topic) == 2
    assert "stopped: 2 signals" in relay.output


def test_a_message_told_twice_is_one_signal_by_its_id(cluster: Cluster, topic: str, consume: Consume) -> None:
    for headers in ({"id": "e-1"}, {"id": b"e-1"}, {"ce_id": "e-2"}, {"ce_id": "e-2", "other": "x"}, {"id": ""}):
        cluster.send(topic, fact(), **headers)
    relay = consume("--drain")
    assert relay.wait() == 0, relay.output
    assert told() == [("account.created", "e-1"), ("account.created", "e-2"), ("account.created", "0\t4")]
    assert "stopped: 2 duplicates, 3 signals" in relay.output


def test_what_can_be_no_signal_is_kept_as_undelivered_and_the_next_goes_through(
    cluster: Cluster, topic: str, consume: Consume
) -> None:
    poison: list[tuple[str, Any, dict[str, Any]]] = [
        ("malformed_json", CANARY.encode(), {}),
        ("not_utf8", b"\xff\xfe" + CANARY.encode(), {}),
        ("not_an_object", [CANARY], {}),
        ("null_character", fact(payload={"x": f"{CANARY}\0"}), {}),
        ("field_unknown", fact(canary=1), {}),
        ("signal_name_invalid", {"linking_id": "L-1"}, {}),
        ("signal_name_invalid", fact("decision:1"), {}),
        ("signal_name_invalid", fact("cancel"), {}),
        ("signal_address_invalid", fact(linking_id=None), {}),
        ("signal_address_invalid", fact(workflow=str(uuid.uuid4())), {}),
        ("linking_id_invalid", fact(linking_id=7), {}),
        ("workflow_not_found", fact(linking_id=None, workflow=CANARY), {}),
        ("workflow_not_found", fact(linking_id=None, workflow=str(uuid.uuid4())), {}),
        ("signal_payload_invalid", fact(payload=CANARY), {}),
        ("too_large", fact(payload={"x": "x" * 256 * 1024}), {}),
        ("message_id_reused", fact(payload={"account": "another"}), {"id": "e-1"}),
        ("id_invalid", fact(), {"id": "x" * 201}),
        ("id_invalid", fact(), {"ce_id": b"\xff"}),
    ]
    cluster.send(topic, fact(), id="e-1")
    for _, value, headers in poison:
        cluster.send(topic, value, **headers)
    cluster.send(topic, fact("last"))
    relay = consume("--drain")
    assert relay.wait() == 0, relay.output
    undelivered = UndeliveredMessage.objects.order_by("offset")
    assert [(row.topic, row.partition, row.offset, row.code) for row in undelivered] == [
        (topic, 0, offset, code) for offset, (code, _, _) in enumerate(poison, start=1)
    ]
    assert all(row.reason and CANARY not in row.reason for row in undelivered)
    assert bytes(undelivered[0].value) == CANARY.encode(), "it is kept"
    assert undelivered[17].headers == [["ce_id", "/w=="]]
    assert told() == [("account.created", "e-1"), ("last", f"0\t{len(poison) + 1}")]
    assert cluster.committed(topic, group=topic) == len(poison) + 2
    assert CANARY not in relay.output
    assert f"undelivered {topic} 0:1: malformed_json" in relay.output


def test_an_id_that_looks_like_a_place_is_not_taken_for_the_message_there(
    cluster: Cluster, topic: str, consume: Consume
) -> None:
    cluster.send(topic, fact(), id="0:1")
    cluster.send(topic, fact())
    cluster.send(topic, fact("last"))
    relay = consume("--drain")
    assert relay.wait() == 0, relay.output
    assert [name for name, _ in told()] == ["account.created", "account.created", "last"]


def test_headers_that_cannot_be_read_hold_nothing_up(cluster: Cluster, topic: str, consume: Consume) -> None:
    cluster.send_with_header(topic, json.dumps(fact()).encode(), name=b"\xff")
    cluster.send_with_header(topic, b"no JSON either", name=b"\xff")
    cluster.send(topic, fact("last"))
    relay = consume("--drain")
    assert relay.wait() == 0, relay.output
    undelivered = UndeliveredMessage.objects.order_by("offset").values_list("code", "headers")
    assert list(undelivered) == [("headers_invalid", [["\ufffd", None]]), ("malformed_json", [["\ufffd", None]])]
    assert [name for name, _ in told()] == ["last"]


def test_a_message_without_a_value_is_skipped(cluster: Cluster, topic: str, consume: Consume) -> None:
    cluster.send(topic, None)
    relay = consume("--drain")
    assert relay.wait() == 0, relay.output
    assert not UndeliveredMessage.objects.exists()
    assert cluster.committed(topic, group=topic) == 1
    assert "1 tombstones" in relay.output


# --- Stopping, crashing, starting again ----------------------------------------------------------------------------


def test_told_to_stop_it_commits_and_the_next_goes_on_from_there(
    cluster: Cluster, topic: str, consume: Consume
) -> None:
    for _ in range(3):  # the first is committed at once, the others are not before a second has passed
        cluster.send(topic, fact())
    relay = consume()
    until_told(3, relay)
    relay.signal(signal.SIGTERM)
    assert relay.wait(10) == 0, relay.output
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
    assert first.wait(10) == 0, first.output
    until(lambda: f"given {wide} 0, {wide} 1" in second.output, what=lambda: second.output)
    cluster.send(wide, fact(), partition=0)
    cluster.send(wide, fact(), partition=1)
    until_told(4, second)
    second.interrupt()
    assert second.wait(10) == 0, second.output
    # On a slow machine the group may take a member for dead in between; then a message comes again, as a duplicate.
    assert re.search(r"stopped: .*\b1 signals", first.output), first.output
    assert re.search(r"stopped: .*\b3 signals", second.output), second.output
    assert Signal.objects.count() == 4, "and nothing came twice"


# --- The database is away -------------------------------------------------------------------------------------------


def test_a_message_waits_for_the_database_and_its_offset_with_it(
    cluster: Cluster, topic: str, consume: Consume, proxy: Proxy
) -> None:
    """For longer than a member may go without polling: the group takes it for alive all the same."""
    options = {**json.loads(cluster.OPTIONS), "max.poll.interval.ms": 2000}
    relay = consume(DATABASE_URL=database_url(port=proxy.port), KAFKA_OPTIONS=json.dumps(options))
    cluster.send(topic, fact("before"))
    until_told(1, relay)
    until(lambda: cluster.committed(topic, group=topic) == 1, what=lambda: relay.output)
    proxy.cut()
    for name in ("first", "second"):
        cluster.send(topic, fact(name))
    cluster.send(topic, b"poison")
    until(lambda: "the database is away" in relay.output, what=lambda: relay.output)
    time.sleep(2.5)
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
        until(lambda: "_TRANSPORT" in relay.output, what=lambda: relay.output)
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


# --- How it is asked ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        ([], {"KAFKA_BROKERS": ""}, "KAFKA_BROKERS is not set. Set it, or give --brokers host:9092."),
        ([], {"KAFKA_TOPICS": []}, "KAFKA_TOPICS is not set. Set it, or give --topic NAME."),
        (["--topic", "^a.*"], {}, "'^a.*' is not a topic's name"),
        (["--topic", "x" * 145], {}, "at most 144"),
        ([], {"KAFKA_OPTIONS": '{"sasl.password": "hunter2"'}, "KAFKA_OPTIONS is not a JSON object"),
        ([], {"KAFKA_OPTIONS": '{"enable.auto.commit": true}'}, "KAFKA_OPTIONS may not set enable.auto.commit"),
        ([], {"KAFKA_OPTIONS": '{"sasl.pass": "hunter2"}'}, 'No such configuration property: "sasl.pass"'),
    ],
)
def test_what_is_missing_or_wrong_is_a_clear_message(
    settings: Any, arguments: list[str], environ: dict[str, str], message: str
) -> None:
    for name, value in {"KAFKA_BROKERS": "127.0.0.1:1", "KAFKA_TOPICS": ["facts"], **environ}.items():
        setattr(settings, name, value)
    with pytest.raises(CommandError) as refused:
        call_command("consumekafka", *arguments)
    assert message in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_without_its_package_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "from django.core.management import execute_from_command_line as run\n"
        "run(['manage.py', 'consumekafka'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, **environment(), "DJANGO_SETTINGS_MODULE": "config.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr == "CommandError: Kafka's client is not installed: pip install -c constraints.txt '.[kafka]'\n"


def test_help_teaches_the_messages_and_the_flags(consume: Consume) -> None:
    relay = consume("--help")
    assert relay.wait() == 0
    for word in (
        '"linking_id"',
        '"workflow"',
        "--topic",
        "--drain",
        "--group",
        "KAFKA_OPTIONS",
        "SIGTERM",
        "undelivered",
    ):
        assert word in relay.output

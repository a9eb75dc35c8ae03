"""`manage.py consumekafka` and `consumesqs` take submissions: each is stored once, or a dead letter that says why."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from uuid import uuid4

import pytest
from django.db import connections
from django.db.models.functions import Now

from tests.acceptance.doors import Door, OfKafka, OfSqs, Pairs, queue_of
from tests.kafka import Cluster
from tests.postgres import Restart
from tests.processes import Runworker, until
from tests.servers import Proxy, database_url
from tests.sqs import Server
from workflows.ingress import api_keys
from workflows.models import ApiKey, SideProcess, UndeliveredMessage, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

# As many as in production's bad hour: ONRAMP_QUEUED=20000.
QUEUED = int(os.environ.get("ONRAMP_QUEUED", "2000"))
# Of so many one is refused, and one is sent twice.
REFUSED, TWICE = 50, 20
# So that what a consumer had in hand when it was killed comes again soon.
SOON = {"SQS_VISIBILITY_SECONDS": "5"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("sqs") / "moto.log")
    yield server
    server.close()


@pytest.fixture(params=["kafka", "sqs"])
def door(request: pytest.FixtureRequest, tmp_path: Path, started: list[Runworker]) -> Door:
    api_keys.create("shop", tenant="north")
    if request.param == "kafka":
        return OfKafka(request.getfixturevalue("cluster"), f"t-{uuid4().hex[:8]}", tmp_path, started)
    return OfSqs(request.getfixturevalue("server"), tmp_path, started)


only_sqs = pytest.mark.parametrize("door", ["sqs"], indirect=True)
only_kafka = pytest.mark.parametrize("door", ["kafka"], indirect=True)


def good(count: int) -> list[tuple[str, str]]:
    return [(str(uuid4()), json.dumps({"seconds": 0, "n": number})) for number in range(count)]


def drained(consumer: Runworker) -> str:
    assert consumer.wait(120) == 0, consumer.output
    return consumer.output.partition("stopped: ")[2].strip()


def stored() -> set[str]:
    return {str(key) for key in Workflow.objects.values_list("idempotency_key", flat=True)}


def test_submissions_are_stored_as_by_http_and_replays_are_harmless(door: Door) -> None:
    pairs = good(30)
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    door.send([*pairs, *pairs[:5]], traceparent=traceparent)
    tracing = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    assert drained(door.start("--drain", **tracing)) == "5 replays, 30 submissions"
    first = Workflow.objects.get(idempotency_key=pairs[0][0])
    assert first.traceparent == traceparent
    assert (first.workflow_type, first.submitted_by, first.tenant, first.payload["n"]) == ("slow", "shop", "north", 0)
    assert stored() == {key for key, _ in pairs}
    assert door.dead() == []
    assert door.is_empty()


def test_what_is_refused_is_a_dead_letter_and_the_others_are_stored(door: Door) -> None:
    (key, body), *pairs = good(500)
    other = str(uuid4())
    Workflow.objects.create(workflow_type="slow", idempotency_key=other, submitted_by="another", payload={})
    bad = [
        ("", body, "idempotency_key_missing"),
        ("not a uuid", body, "idempotency_key_invalid"),
        (str(uuid4()), "{", "malformed_json"),
        (str(uuid4()), "[1]", "not_an_object"),
        (str(uuid4()), '{"a": "\\u0000"}', "null_character"),
        (str(uuid4()), json.dumps({"a": "x" * 256 * 1024}), "too_large"),
        (other, body, "idempotency_key_taken"),
    ]
    door.send([(key, body)])
    assert drained(door.start("--drain")) == "1 submissions"
    bad.append((key, '{"another": "payload"}', "idempotency_key_reused"))
    door.send([*pairs[:250], *((key, body) for key, body, _ in bad), *pairs[250:]])
    consumer = door.start("--drain")
    assert drained(consumer) == f"{len(bad)} refused, 499 submissions"
    assert sorted(door.dead()) == sorted((key, code) for key, _, code in bad)
    assert Workflow.objects.count() == 501
    assert door.is_empty()
    assert "another" not in consumer.output


def test_dead_letters_are_sent_again_by_reading_them(door: Door) -> None:
    (key, body), poison = good(1)[0], (str(uuid4()), "{")
    taken = Workflow.objects.create(workflow_type="slow", idempotency_key=key, submitted_by="another", payload={})
    door.send([(key, body), poison])
    assert drained(door.start("--drain")) == "2 refused"
    Workflow.objects.filter(pk=taken.pk).update(idempotency_key=uuid4())  # what was wrong is mended
    assert drained(door.start("--drain", again=True)) == "1 refused, 1 submissions"
    assert key in stored()


def test_killed_after_the_commit_they_come_again_and_are_replays(door: Door) -> None:
    pairs = good(20)
    door.send([*pairs, ("", "{}")])
    first = door.start(ONRAMP_FAILPOINT="after_commit:submissions", **SOON)
    assert first.wait() == -signal.SIGKILL, first.output
    assert stored()
    assert not door.is_empty()
    again = door.start(**SOON)
    until(door.is_empty, what=lambda: again.output)
    again.signal(signal.SIGTERM)
    assert "replays" in drained(again)
    assert stored() == {key for key, _ in pairs}
    assert set(door.dead()) == {("", "idempotency_key_missing")}


@pytest.mark.parametrize("boundary", ["after_commit:refused", "after_commit:submissions"])
def test_killed_after_a_refused_one_is_kept_it_comes_again_and_is_kept_once(door: Door, boundary: str) -> None:
    bad = str(uuid4())
    door.send([(bad, "{")])
    kept = {"REFUSED_SUBMISSIONS_KEPT": "1", **SOON}
    first = door.start(ONRAMP_FAILPOINT=boundary, **kept)
    assert first.wait() == -signal.SIGKILL, first.output
    assert str(UndeliveredMessage.objects.get().idempotency_key) == bad
    assert not door.is_empty(), "the offset comes after the row"
    again = door.start(**kept)
    until(door.is_empty, what=lambda: again.output)
    again.signal(signal.SIGTERM)
    assert "1 refused" in drained(again)
    assert UndeliveredMessage.objects.count() == 1
    killed, stopped = SideProcess.objects.order_by("pk")
    assert (killed.stopped_at, stopped.ended_how) == (None, "")
    assert stopped.stopped_at
    assert killed.takes == stopped.takes == [door.name]
    assert door.dead() == []


def test_without_the_database_nothing_is_lost_or_refused(door: Door, proxy: Proxy) -> None:
    consumer = door.start(DATABASE_URL=database_url(port=proxy.port))
    before, after = good(1), good(700)
    door.send(before)
    until(lambda: stored() == {key for key, _ in before}, what=lambda: consumer.output)
    proxy.cut()
    door.send(after)
    until(lambda: "is away" in consumer.output, what=lambda: consumer.output)
    time.sleep(3)
    assert Workflow.objects.count() == 1
    proxy.connect()
    until(lambda: Workflow.objects.count() == 701, what=lambda: consumer.output)
    consumer.signal(signal.SIGTERM)
    assert consumer.wait() == 0, consumer.output
    assert door.is_empty()
    assert door.dead() == []


@pytest.mark.parametrize("end", ["revoked_at", "expires_at"])
def test_of_a_client_without_a_valid_key_they_wait(door: Door, end: str) -> None:
    consumer = door.start()
    pairs = good(2)
    door.send(pairs[:1])
    until(lambda: Workflow.objects.count() == 1, what=lambda: consumer.output)
    until(lambda: ApiKey.objects.exclude(last_used_at=None).exists())
    ApiKey.objects.update(**{end: Now()})
    time.sleep(api_keys.MAX_AGE_SECONDS + 1)
    door.send(pairs[1:])
    until(lambda: "has no valid key for this any more" in consumer.output, what=lambda: consumer.output)
    assert door.dead() == []
    api_keys.create("shop", tenant="south")
    until(lambda: Workflow.objects.filter(tenant="south").count() == 1, what=lambda: consumer.output)


@only_sqs
def test_a_stop_gives_back_what_is_in_hand(door: Door, proxy: Proxy) -> None:
    consumer = door.start(DATABASE_URL=database_url(port=proxy.port))
    until(lambda: "found" not in consumer.output and consumer.log.exists())
    proxy.cut()
    door.send(good(15))
    until(lambda: "is away" in consumer.output, what=lambda: consumer.output)
    consumer.signal(signal.SIGTERM)
    assert consumer.wait() == 0, consumer.output
    assert queue_of(door).left() == (15, 0)


@only_sqs
def test_a_body_of_one_mebibyte_is_a_dead_letter_without_its_end(door: Door) -> None:
    assert isinstance(door, OfSqs)
    key = str(uuid4())
    door.send([(key, "x" * (1024 * 1024 - 200))])
    assert drained(door.start("--drain")) == "1 refused"
    (letter,) = door.letters()
    assert json.loads(letter["MessageAttributes"]["problem"]["StringValue"])["code"] == "too_large"
    assert letter["MessageAttributes"]["Idempotency-Key"]["StringValue"] == key
    assert letter["MessageAttributes"]["cut"]["StringValue"] == str(1024 * 1024 - 200)
    assert len(letter["Body"]) == 1024 * 1024 - 16 * 1024


@only_kafka
def test_signals_and_submissions_come_by_one_consumer(door: Door, cluster: Cluster, topic: str) -> None:
    assert isinstance(door, OfKafka)
    cluster.send(topic, {"name": "account.created", "linking_id": "L-1"})
    door.send(good(3))
    both = {"KAFKA_TOPICS": topic}
    assert drained(door.start("--drain", **both)) == "1 signals, 3 submissions"


def test_a_client_that_is_unknown_is_named_at_the_start(door: Door) -> None:
    ApiKey.objects.all().delete()
    consumer = door.start("--drain")
    assert consumer.wait() == 1
    assert "There is no API client 'shop'" in consumer.output


def trickle(door: Door, pairs: Pairs) -> None:
    """Send them with few waiting: moto looks at each that waits for each that it is sent."""
    for at in range(0, len(pairs), 200):
        door.send(pairs[at : at + 200])
        while isinstance(door, OfSqs) and sum(door.queue.left()) > 800:
            time.sleep(0.2)


# --- All of it at once ------------------------------------------------------------------------------


@pytest.mark.alone
def test_each_is_stored_once_while_consumers_are_killed_and_the_database_restarts(
    door: Door, restart_postgres: Restart, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = good(QUEUED)
    bad = [(str(uuid4()), "{") for _ in range(QUEUED // REFUSED)]
    sent = [*pairs, *pairs[::TWICE], *bad]
    began = time.monotonic()
    sender = Thread(target=trickle, args=(door, sent))
    sender.start()
    consumers, kills, restarts = [door.start(**SOON) for _ in range(2)], 0, 0
    while sender.is_alive() or Workflow.objects.count() < QUEUED or not door.is_empty():
        outputs = "".join(consumer.output[-500:] for consumer in consumers)
        assert time.monotonic() < began + 90 + QUEUED / 20, f"{Workflow.objects.count()} of {QUEUED}: {outputs}"
        time.sleep(1)
        if kills < QUEUED / 200:
            consumers[kills % 2].kill()
            consumers[kills % 2] = door.start(**SOON)
            kills += 1
            if kills in (3, 6):
                connections.close_all()
                restart_postgres()
                restarts += 1
    seconds = time.monotonic() - began
    for consumer in consumers:
        consumer.signal(signal.SIGTERM)
        assert consumer.wait() == 0, consumer.output
    dead = {key for key, _ in door.dead()}
    assert stored() == {key for key, _ in pairs}, "each once: the key is unique"
    assert dead == {key for key, _ in bad}
    with capsys.disabled():
        sys.stdout.write(
            f"\n{type(door).__name__}: {len(sent)} sent, all decided in {seconds:.0f} s, {kills} SIGKILLs, "
            f"{restarts} restarts, {len(bad)} dead letters\n"
        )

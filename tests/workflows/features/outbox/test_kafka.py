"""Events are sent to a topic of Kafka, on librdkafka's own mock cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer, Message
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings

from tests.kafka import Cluster
from tests.processes import until
from tests.workflows import rows
from tests.workflows.features.outbox.test_relay import now
from workflows.features.outbox import kafka
from workflows.features.outbox.destinations import destinations as read
from workflows.features.outbox.kafka import KafkaTopic
from workflows.features.outbox.relay import Relay
from workflows.models import OutboxEvent, Workflow

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lake(settings: Settings, destinations: Callable[..., None]) -> Iterator[Cluster]:
    cluster = Cluster()
    cluster.create_topic("events", 4)
    settings.KAFKA_BROKERS, settings.KAFKA_OPTIONS = cluster.brokers, ""
    destinations(lake={"kafka": "events", "topics": ["*"]})
    yield cluster
    cluster.close()


def relay(**options: Any) -> Relay:
    return Relay(read()["lake"], KafkaTopic(read()["lake"]), Event(), **options)


def messages(cluster: Cluster, number: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": cluster.brokers, "group.id": "lake", "auto.offset.reset": "earliest"})
    consumer.subscribe(["events"])
    try:
        return consumer.consume(number, timeout=20)
    finally:
        consumer.close()


def test_the_events_of_a_workflow_are_in_one_partition_in_their_order(lake: Cluster) -> None:
    workflow = rows.workflow()
    mine = [rows.outbox_event(workflow, destination="lake", state="", topic=f"step.{number}") for number in range(3)]
    rows.outbox_event(destination="lake", state="")
    sender = relay()
    while sender.send_next():
        pass
    assert set(OutboxEvent.objects.values_list("state", flat=True)) == {"sent"}
    key = str(Workflow.objects.get(pk=workflow.pk).idempotency_key).encode()
    got = [each for each in messages(lake, 4) if each.key() == key]
    assert len({each.partition() for each in got}) == 1
    told = [json.loads(each.value() or b"") for each in got]
    assert [(each["id"], each["type"]) for each in told] == [(str(each.event_id), each.topic) for each in mine]
    assert dict(got[0].headers() or [])["id"] == str(mine[0].event_id).encode()


def test_a_message_hands_on_the_trace_of_its_workflow(lake: Cluster) -> None:
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    from workflows.features.traces.spans import Spans

    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    exporter = memory.InMemorySpanExporter()
    spans = Spans(exporter)
    row = rows.outbox_event(rows.workflow(traceparent=f"00-{trace}-00f067aa0ba902b7-01"), destination="lake", state="")
    relay(spans=spans).send_next()
    spans.end()
    (span,) = exporter.get_finished_spans()
    assert span.attributes == {
        "onramp.workflow_id": row.workflow_id,
        "onramp.destination": "lake",
        "onramp.topic": row.topic,
        "messaging.operation.type": "send",
        "messaging.message.id": str(row.event_id),
        "messaging.system": "kafka",
        "messaging.destination.name": "events",
    }
    headers = dict(messages(lake, 1)[0].headers() or [])
    assert headers["traceparent"] == f"00-{trace}-{span.context.span_id:016x}-01".encode()
    assert span.end_time > span.start_time


def test_while_the_brokers_are_away_nothing_counts_as_sent(lake: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kafka.FIXED_PROPERTIES, "message.timeout.ms", 500)
    lake.cut()
    row = rows.outbox_event(destination="lake", state="")
    sender = relay()
    sender.send_next()
    assert (now(row).state, now(row).error) == ("", "_MSG_TIMED_OUT")
    lake.restore()

    def is_sent() -> bool:
        OutboxEvent.objects.update(due_at=row.at)
        sender.send_next()
        return now(row).state == "sent"

    until(is_sent)
    assert len(messages(lake, 1)) == 1


def test_a_relay_that_must_stop_hands_nothing_to_the_producer(lake: Cluster) -> None:
    row = rows.outbox_event(destination="lake", state="")
    stopping = relay()
    stopping._stopping.set()
    stopping.send_next()
    assert (now(row).state, now(row).error) == ("", "")


@pytest.mark.parametrize(
    ("brokers", "options"),
    [
        ("", ""),
        ("a:1", "7"),
        ("a:1", "{"),
        ("a:1", '{"enable.idempotence": false}'),
        ("a:1", '{"bootstrap.servers": "b"}'),
    ],
)
def test_a_slip_in_the_settings_is_told_without_quoting_them(
    brokers: str, options: str, lake: Cluster, settings: Settings
) -> None:
    settings.KAFKA_BROKERS, settings.KAFKA_OPTIONS = brokers, options
    with pytest.raises(ImproperlyConfigured, match="KAFKA"):
        relay()

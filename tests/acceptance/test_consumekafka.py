"""`manage.py consumekafka`, as an operator starts it: what becomes of a message, and how it is asked."""

import json
import os
import subprocess
import sys
import uuid
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.acceptance.conftest import Consume
from tests.acceptance.messages import CANARY, fact, is_due, told, waiting
from tests.kafka import Cluster
from tests.processes import environment
from tests.servers import ROOT
from workflows.ingress.messages import UNREADABLE_HEADERS, Arrived
from workflows.models import Signal, UndeliveredMessage

pytestmark = pytest.mark.django_db(transaction=True)


# --- What becomes of a message --------------------------------------------------------------------------------------


def test_messages_become_signals_one_for_each_id_and_wake_whom_they_are_for(
    cluster: Cluster, topic: str, consume: Consume
) -> None:
    linked, addressed = waiting(linking_id="L-1"), waiting()
    others = [waiting(linking_id="L-2"), waiting(linking_id="L-1", wake_on=["parcel.sent"])]
    cluster.send(topic, fact())
    cluster.send(topic, {"name": "account.created", "workflow": str(addressed.idempotency_key)})
    for headers in ({"id": "e-1"}, {"id": b"e-1"}, {"ce_id": "e-2"}, {"ce_id": "e-2", "other": "x"}, {"id": ""}):
        cluster.send(topic, fact(linking_id="L-3"), **headers)
    relay = consume("--drain")
    assert relay.wait() == 0, relay.output
    assert list(
        Signal.objects.order_by("id").values_list("source", "dedupe_key", "name", "linking_id", "workflow_id")
    ) == [
        (f"kafka:{topic}", "0\t0", "account.created", "L-1", None),
        (f"kafka:{topic}", "0\t1", "account.created", None, addressed.pk),
        *((f"kafka:{topic}", key, "account.created", "L-3", None) for key in ("e-1", "e-2", "0\t6")),
    ]
    assert list(Signal.objects.order_by("id").values_list("payload", flat=True))[:2] == [{"account": CANARY}, {}]
    assert is_due(linked)
    assert is_due(addressed)
    assert not any(map(is_due, others))
    assert cluster.committed(topic, group=topic) == 7
    assert "stopped: 2 duplicates, 5 signals" in relay.output


def test_what_can_be_no_signal_is_kept_as_undelivered_and_the_next_goes_through(
    cluster: Cluster, topic: str, consume: Consume
) -> None:
    poison: list[tuple[str, Any, dict[str, Any]]] = [
        ("malformed_json", CANARY.encode(), {}),
        ("null_character", fact(payload={"x": f"{CANARY}\0"}), {}),
        ("field_unknown", fact(canary=1), {}),
        ("signal_name_invalid", fact("decision:1"), {}),
        ("workflow_not_found", fact(linking_id=None, workflow=str(uuid.uuid4())), {}),
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
    assert Arrived.kept(undelivered[0]).value == CANARY.encode(), "it is kept"
    assert Arrived.kept(undelivered[len(poison) - 1]).headers == [("ce_id", b"\xff")]
    assert told() == [("account.created", "e-1"), ("last", f"0\t{len(poison) + 1}")]
    assert cluster.committed(topic, group=topic) == len(poison) + 2
    assert CANARY not in relay.output
    assert f"undelivered {topic} 0:1: malformed_json" in relay.output


def test_what_looks_odd_holds_nothing_up(cluster: Cluster, topic: str, consume: Consume) -> None:
    """An id that looks like a place, headers that cannot be read, and a message without a value."""
    cluster.send(topic, fact(), id="0:1")
    cluster.send(topic, fact())
    cluster.send_with_header(topic, json.dumps(fact()).encode(), name=b"\xff")
    cluster.send_with_header(topic, b"no JSON either", name=b"\xff")
    cluster.send(topic, None)
    cluster.send(topic, fact("last"))
    relay = consume("--drain")
    assert relay.wait() == 0, relay.output
    undelivered = UndeliveredMessage.objects.order_by("offset")
    assert [row.code for row in undelivered] == ["headers_invalid", "malformed_json"]
    assert [Arrived.kept(row).headers for row in undelivered] == [UNREADABLE_HEADERS] * 2
    assert [name for name, _ in told()] == ["account.created", "account.created", "last"]
    assert cluster.committed(topic, group=topic) == 6
    assert "1 tombstones" in relay.output


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
    assert ended.stderr.endswith("confluent_kafka is not installed: pip install 'django-onramp[kafka]'\n")

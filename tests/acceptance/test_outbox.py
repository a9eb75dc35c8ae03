"""The outbox, with relays and workers that are killed, and receivers of which one fails, one hangs and one has gone.

`OUTBOX_WORKFLOWS=5000` makes it larger, and prints what it took.
"""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from django.db import transaction
from django.db.models import Count, F, Max
from django.db.models.functions import Now

from tests.acceptance.conftest import Start
from tests.engine import submit
from tests.kafka import Cluster
from tests.processes import Runworker, until
from tests.workflows import rows
from tests.workflows.features.outbox.receiver import Receiver, receiver
from workflows.models import OutboxEvent, Service, SideProcess, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
WORKFLOWS = int(os.environ.get("OUTBOX_WORKFLOWS", "300"))
# What a workflow of the definition TOLD publishes, in this order, if it completes.
COMPLETE = ["order.opened", "order.paid", "workflow.completed"]
KILL_EVERY = 2.0


class Relayoutbox(Runworker):
    command = "relayoutbox"


StartRelay = Callable[..., Relayoutbox]


@pytest.fixture
def relayoutbox(tmp_path: Path, started: list[Runworker]) -> StartRelay:
    def start(*arguments: str, **environ: str) -> Relayoutbox:
        relay = Relayoutbox(tmp_path / f"process-{len(started)}.log", ("TOLD",), arguments, **environ)
        started.append(relay)
        return relay

    return start


def destinations(**receivers: Receiver) -> dict[str, str]:
    named = {name: {"url": it.url, "secrets": [SECRET], "topics": ["*"]} for name, it in receivers.items()}
    return {"OUTBOX_DESTINATIONS": json.dumps(named)}


def test_everybody_is_told_in_order_whatever_dies_and_nobody_delays_another(
    runworker: Start, relayoutbox: StartRelay, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    luck, lock = random.Random(seed), Lock()

    failed: Counter[str] = Counter()

    def one_in_five_fails(event: dict[str, Any]) -> int:
        with lock:  # the same one no more than twice: the third delay is 20 seconds
            fails = luck.random() < 0.2 and failed[event["id"]] < 2
            failed[event["id"]] += fails
        return 500 if fails else 204

    with ExitStack() as receivers:
        good, flaky, hangs, gone = (
            receivers.enter_context(receiver(answers=answers))
            for answers in (lambda _: 204, one_in_five_fails, lambda _: None, lambda _: 410)
        )
        environ = destinations(good=good, flaky=flaky, hangs=hangs, gone=gone)
        with transaction.atomic():
            Workflow.objects.bulk_create(
                Workflow(
                    workflow_type="told",
                    idempotency_key=f"00000000-0000-4000-8000-{number:012}",
                    payload={"number": number},
                )
                for number in range(WORKFLOWS)
            )
        began = time.monotonic()
        ours: list[tuple[Callable[[], Runworker], Runworker]] = [
            (start, start())
            for start in (
                *[lambda: runworker("TOLD", arguments=("--processes", "1"), **environ)] * 2,
                *[lambda: relayoutbox(**environ)] * 2,
            )
        ]
        kills = 0
        told_all = 0.0
        while True:
            time.sleep(KILL_EVERY)
            pending = Workflow.objects.filter(status="PENDING").exists()
            left = OutboxEvent.objects.filter(destination__in=["good", "flaky"]).exclude(state="sent")
            if not pending and not left.exists():
                break
            assert time.monotonic() - began < 60 + WORKFLOWS * 0.3, left.values("destination").annotate(Count("pk"))
            if not pending and not told_all and not left.filter(destination="good").exists():
                told_all = time.monotonic() - began
            # Not for ever: a workflow whose workers die again and again is put off for longer and longer.
            if kills < 8 + WORKFLOWS // 100:
                start, running = ours.pop(0)
                running.kill()
                kills += 1
                ours.append((start, start()))
        took = time.monotonic() - began
        for _, running in ours:
            running.signal(signal.SIGTERM)
        assert [running.wait() for _, running in ours] == [0] * 4

    by_status = dict(Workflow.objects.values_list("status").annotate(Count("pk")))
    assert by_status == {"COMPLETE": WORKFLOWS * 9 // 10, "FAILED": WORKFLOWS // 10}
    expected = {
        str(key): COMPLETE if status == "COMPLETE" else ["workflow.failed"]
        for key, status in Workflow.objects.values_list("idempotency_key", "status")
    }
    for it in (good, flaky):
        _require_told_in_order(it, expected)
    # An id is one event, and an event has one id.
    assert len({*good.ids}) == len({(each["subject"], each["type"]) for each in good.got}) == len({*flaky.ids})
    # Those that never answered did not delay the others, who are told of everything.
    untold = OutboxEvent.objects.filter(destination__in=["hangs", "gone"])
    assert not untold.filter(state="sent").exists()
    assert untold.count() == 2 * len({*good.ids})
    disabled = Service.objects.get(name="outbox gone")
    assert (disabled.opened_at is not None, disabled.retry_at) == (True, None)
    with capsys.disabled():
        sys.stderr.write(_figures(good, flaky, hangs, gone, took, told_all, kills))


def _require_told_in_order(it: Receiver, expected: dict[str, list[str]]) -> None:
    told = defaultdict(list)
    for event in it.got:
        told[event["subject"]].append(event["type"])
    assert told.keys() == expected.keys()
    for subject, topics in told.items():
        assert list(dict.fromkeys(topics)) == expected[subject], "at least once"
        assert topics == sorted(topics, key=expected[subject].index), "a later event before an earlier one"


def _figures(good: Receiver, flaky: Receiver, hangs: Receiver, gone: Receiver, *of: float) -> str:
    took, told_all, kills = of
    late = {}
    for name in ("good", "flaky"):
        sent = OutboxEvent.objects.filter(destination=name).annotate(took=F("settled_at") - F("at"))
        seconds = [each.total_seconds() for each in sent.values_list("took", flat=True)]
        late[name] = f"median {median(seconds):.2f} s, longest {max(seconds):.1f} s"
    most = OutboxEvent.objects.aggregate(Max("tries"))["tries__max"]
    return (
        f"\n{WORKFLOWS} workflows, {kills} kills, {took:.0f} s (good after {told_all:.0f} s at the latest): "
        f"good got {len(good.got)} for {len({*good.ids})} events ({late['good']}); "
        f"flaky {len(flaky.got)} ({late['flaky']}); hangs {len(hangs.got)}, gone {len(gone.got)} calls; "
        f"most tries {most}"
    )


@pytest.mark.parametrize(("place", "before"), [("after_take", 0), ("after_send", 1)])
def test_what_a_relay_had_in_hand_when_it_died_is_sent_by_the_next_when_its_lease_is_over(
    place: str, before: int, relayoutbox: StartRelay
) -> None:
    with receiver() as it:
        row = rows.outbox_event(submit(workflow_type="told"), state="")
        dead = relayoutbox(**destinations(crm=it), ONRAMP_FAILPOINT=place)
        assert dead.wait() == -signal.SIGKILL
        assert len(it.got) == before
        assert relayoutbox("--drain", **destinations(crm=it)).wait() == 0
        assert len(it.got) == before, "it is the dead one's for a while"
        OutboxEvent.objects.update(due_at=row.at)
        assert relayoutbox("--drain", **destinations(crm=it)).wait() == 0
    assert it.ids == [str(row.event_id)] * (before + 1)
    assert OutboxEvent.objects.get().state == "sent"


def test_a_topic_has_each_event_in_order_however_often_relays_die(
    relayoutbox: StartRelay, cluster: Cluster, topic: str
) -> None:
    cluster.create_topic(wide := f"{topic}-wide", 4)
    lake = {"lake": {"kafka": wide, "topics": ["*"]}}
    environ = {"OUTBOX_DESTINATIONS": json.dumps(lake), "KAFKA_BROKERS": cluster.brokers}
    workflows = [submit(workflow_type="told") for _ in range(WORKFLOWS)]
    OutboxEvent.objects.bulk_create(
        OutboxEvent(event_id=uuid4(), workflow=workflow, destination="lake", topic=name, body={})
        for name in COMPLETE
        for workflow in workflows
    )
    unsent = OutboxEvent.objects.exclude(state="sent")
    for place in ("after_take", "after_send"):
        assert relayoutbox(ONRAMP_FAILPOINT=place, **environ).wait() == -signal.SIGKILL
        unsent.update(due_at=Now())  # its lease is over
    kills = 2
    while (left := unsent.count()) > 200:
        relay = relayoutbox(**environ)
        until(lambda: unsent.count() < left, what=lambda: relay.output)  # noqa: B023
        relay.kill()
        kills += 1
        unsent.update(due_at=Now())
    assert relayoutbox("--drain", **environ).wait() == 0
    assert kills > 3
    assert not unsent.exists()

    got: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for message in everything_in(wide, cluster):
        event = json.loads(message.value() or b"")
        assert (message.key(), dict(message.headers() or [])["id"]) == (event["subject"].encode(), event["id"].encode())
        got[event["subject"]].append((event["type"], event["id"]))
    assert len(got) == WORKFLOWS
    for told in got.values():
        assert len(set(told)) == len(COMPLETE), "an event has one id, however often it is sent"
        assert [name for name, _ in dict.fromkeys(told)] == COMPLETE
        assert told == sorted(told, key=lambda each: COMPLETE.index(each[0])), "a later event before an earlier one"
    assert sum(map(len, got.values())) > WORKFLOWS * len(COMPLETE), "one that died had sent some already"


def everything_in(topic: str, cluster: Cluster) -> Iterator[Message]:
    """Each partition to its end."""
    config = {"bootstrap.servers": cluster.brokers, "group.id": "reader", "enable.partition.eof": True, "log_level": 0}
    reader = Consumer({**config, "enable.auto.commit": False})
    reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(4)])
    ended = 0
    while ended < 4:
        message = reader.poll(10)
        assert message is not None
        if message.error():
            ended += 1
        else:
            yield message
    reader.close()


def test_a_relay_that_is_stopped_ends_what_it_is_sending_and_gives_back_the_rest(relayoutbox: StartRelay) -> None:
    with receiver(answers=lambda _: (time.sleep(0.5), 204)[1]) as slow:  # type: ignore[func-returns-value]
        row = submit(workflow_type="told")
        for number in range(3):  # one after the other
            OutboxEvent.objects.create(
                event_id=f"00000000-0000-4000-8000-00000000000{number}",
                workflow=row,
                destination="crm",
                topic="order.paid",
                body={},
            )
        relay = relayoutbox(**destinations(crm=slow))
        until(lambda: slow.got)
        relay.signal(signal.SIGTERM)
        assert relay.wait() == 0
    sent = OutboxEvent.objects.filter(state="sent")
    assert len(slow.got) == sent.count() < 3
    assert not OutboxEvent.objects.filter(state="", due_at__gt=Now()).exists(), "nothing is left in its hands"
    beat = SideProcess.objects.get()
    assert (beat.kind, beat.takes, beat.ended_how, beat.stopped_at is None) == ("relay", ["crm"], "", False)


def test_the_command_says_what_is_missing(relayoutbox: StartRelay) -> None:
    for arguments, environ, says in (
        ((), {}, "OUTBOX_DESTINATIONS is empty"),
        (("--destination", "erp"), {"OUTBOX_DESTINATIONS": '{"lake": {"kafka": "t", "topics": ["*"]}}'}, "has no erp"),
        ((), {"OUTBOX_DESTINATIONS": '{"crm": 7}'}, "'crm'"),
    ):
        relay = relayoutbox(*arguments, **environ)  # type: ignore[arg-type]
        assert relay.wait() == 1
        assert says in relay.output
        assert "Traceback" not in relay.output

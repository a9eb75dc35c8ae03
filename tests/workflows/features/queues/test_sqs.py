"""A consumer of SQS in this process, on moto's server: what it has in hand, and dead letters that are not taken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import EndpointConnectionError
from django.core.management import CommandError, call_command
from pytest_django import Settings

from tests import engine
from tests.processes import until
from tests.sqs import Queue, Server, text
from workflows.features.queues import refused, sqs
from workflows.features.queues.sqs import Consumer, Options, SqsFailed
from workflows.ingress import api_keys
from workflows.models import SideProcess, UndeliveredMessage, Workflow
from workflows.postgres.deadlines import DatabaseUnavailable
from workflows.stop_flag import Flag

pytestmark = [*engine.ENGINE, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("sqs") / "moto.log")
    yield server
    server.close()


@pytest.fixture
def queue(server: Server) -> Queue:
    return server.queue()


@pytest.fixture
def dead(server: Server) -> Queue:
    return server.queue()


@pytest.fixture
def consumer(
    server: Server, queue: Queue, dead: Queue, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Consumer]]:
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    engine.define([])
    settings.SUBMISSION_WORKFLOW = "test"
    settings.REFUSED_SUBMISSIONS_KEPT = 0
    api_keys.create("shop")
    made: list[Consumer] = []

    def make(stopping: Flag | None = None, **options: Any) -> Consumer:
        given = {"queue": queue.url, "dead_letters": dead.url, "client": "shop", "visibility": 60, "drain": True}
        made.append(Consumer(Options(**{**given, **options}), stopping or Flag()))
        return made[-1]

    yield make
    for each in made:
        if not each._door._loop.is_closed():
            each._door.close()


def attributes(server: Server, queue: Queue, **attributes: str) -> None:
    server.client.set_queue_attributes(QueueUrl=queue.url, Attributes=attributes)


GOOD, BAD = "{}", "{"


def test_what_the_dead_letters_do_not_take_stays_and_comes_again_and_the_others_go_on(
    consumer: Callable[..., Consumer], queue: Queue, dead: Queue, server: Server
) -> None:
    attributes(server, dead, MaximumMessageSize="1024")
    large, small, good = (str(uuid4()) for _ in range(3))
    queue.send((large, BAD + "x" * 2000), (small, BAD), (good, GOOD))
    ours = consumer(visibility=1)
    assert ours.process_next()
    assert ours.counts == {"submissions": 1, "refused": 1, "not taken as dead letters": 1}
    assert [each["MessageAttributes"]["Idempotency-Key"]["StringValue"] for each in dead.take()] == [small]
    assert sum(queue.left()) == 1
    attributes(server, dead, MaximumMessageSize="100000")
    until(lambda: queue.left() == (1, 0))
    assert ours.process_next()
    assert [each["MessageAttributes"]["Idempotency-Key"]["StringValue"] for each in dead.take()] == [large]
    assert queue.left() == (0, 0)
    assert str(Workflow.objects.get().idempotency_key) == good


def test_of_ten_attributes_a_dead_letter_keeps_the_key(
    consumer: Callable[..., Consumer], queue: Queue, dead: Queue, server: Server
) -> None:
    ten = {"Idempotency-Key": text(str(uuid4())), **{f"A{number}": text("x") for number in range(9)}}
    server.client.send_message(QueueUrl=queue.url, MessageBody=BAD, MessageAttributes=ten)
    assert consumer().process_next()
    (letter,) = dead.take()
    kept = letter["MessageAttributes"]
    assert (len(kept), {"Idempotency-Key", "problem", "origin"} - kept.keys()) == (10, set())


def test_without_an_answer_no_other_dead_letter_is_tried_and_a_stop_gives_all_back(
    consumer: Callable[..., Consumer], queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send(("", BAD), (str(uuid4()), GOOD), ("", BAD))
    stopping, tried = Flag(), 0

    def is_away(**_: Any) -> None:
        nonlocal tried
        tried += 1
        stopping.set()
        raise EndpointConnectionError(endpoint_url="https://sqs")

    ours = consumer(stopping)
    monkeypatch.setattr(ours._sqs, "send_message", is_away)
    assert ours.process_next()
    assert (tried, ours.counts) == (1, {"submissions": 1})
    assert queue.left() == (2, 0)


def test_a_dead_letters_queue_that_is_not_there_ends_it(consumer: Callable[..., Consumer], queue: Queue) -> None:
    queue.send(("", BAD))
    with pytest.raises(SqsFailed, match="NonExistentQueue"):
        consumer(dead_letters=queue.url + "-gone").process_next()
    assert sum(queue.left()) == 1


def test_what_is_refused_is_kept_once_and_what_is_over_the_limit_is_a_dead_letter(
    consumer: Callable[..., Consumer], queue: Queue, dead: Queue, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REFUSED_SUBMISSIONS_KEPT = 1
    keys = [str(uuid4()) for _ in range(2)]
    queue.send((keys[0], BAD))
    ours = consumer(visibility=1)
    with monkeypatch.context() as patch:
        patch.setattr(ours._sqs, "delete_message_batch", lambda **_: {})  # as if it died before
        assert ours.process_next()
    until(lambda: queue.left() == (1, 0))
    queue.send((keys[1], BAD))
    while any(queue.left()):
        ours.process_next()
    row, left = UndeliveredMessage.objects.order_by("pk")
    assert (row.queue, str(row.idempotency_key)) == (queue.url.rpartition("/")[2], keys[0])
    assert (refused.opened(row).body, left.left_with_broker) == (BAD.encode(), 1)
    assert [each["MessageAttributes"]["Idempotency-Key"]["StringValue"] for each in dead.take()] == [keys[1]]


def test_what_is_refused_waits_while_the_database_is_away(
    consumer: Callable[..., Consumer], queue: Queue, dead: Queue, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REFUSED_SUBMISSIONS_KEPT = 1
    queue.send(("", BAD))
    ours = consumer(clock := Clock())

    def away(*_: Any) -> Any:
        clock.now += 100
        raise DatabaseUnavailable

    monkeypatch.setattr(refused, "keep", away)
    assert ours.process_next()
    assert (ours.counts, queue.left(), dead.take()) == ({}, (1, 0), [])


def test_a_consumer_that_sqs_refuses_says_how_it_ended(consumer: Callable[..., Consumer], queue: Queue) -> None:
    with pytest.raises(SqsFailed):
        consumer(queue=queue.url + "-gone").run()
    row = SideProcess.objects.get()
    assert (row.takes, row.ended_how) == ([f"{queue.url.rpartition('/')[2]}-gone"], "SqsFailed")


class Clock(Flag):
    """A clock that goes on by what is slept; it says stop after 150 seconds."""

    now = 1000.0

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        if self.now > 1150:
            self.set()
        return self.is_set()


def watched(ours: Consumer, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int, int]]:
    """When the visibility of messages is changed, to what, and of how many."""
    monkeypatch.setattr(sqs, "monotonic", lambda: clock.now)
    changes: list[tuple[float, int, int]] = []
    change = ours._sqs.change_message_visibility_batch

    def seen(**told: Any) -> Any:
        (to,) = {each["VisibilityTimeout"] for each in told["Entries"]}
        changes.append((clock.now, to, len(told["Entries"])))
        return change(**told)

    monkeypatch.setattr(ours._sqs, "change_message_visibility_batch", seen)
    return changes


@pytest.mark.parametrize("visibility", [6, 60])
def test_what_is_in_hand_is_extended_in_time_and_given_back_at_a_stop(
    visibility: int, consumer: Callable[..., Consumer], queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client has no key, so it waits, as without the database."""
    queue.send(*[(str(uuid4()), GOOD)] * 12)
    clock = Clock()
    ours = consumer(clock, client="nobody", visibility=visibility)
    changes = watched(ours, clock, monkeypatch)
    assert ours.process_next()
    *extended, first, second = changes
    assert (first[1:], second[1:]) == ((0, 10), (0, 2))
    assert [change[1:] for change in extended] == [(visibility, 10), (visibility, 2)] * (len(extended) // 2)
    times = [1000.0, *(at for at, *_ in extended), clock.now]
    assert max(after - at for at, after in pairwise(times)) < visibility
    assert len(extended) / 2 <= 150 / (visibility / 3), "and no more often than it must"
    assert queue.left() == (12, 0)


def test_what_is_in_hand_is_extended_while_dead_letters_are_sent(
    consumer: Callable[..., Consumer], queue: Queue, dead: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send(*[("", BAD)] * 4)
    clock = Clock()
    ours = consumer(clock, visibility=60)
    changes, send = watched(ours, clock, monkeypatch), ours._sqs.send_message

    def slowly(**told: Any) -> Any:
        clock.wait(15)
        return send(**told)

    monkeypatch.setattr(ours._sqs, "send_message", slowly)
    assert ours.process_next()
    assert changes == [(1030, 60, 4), (1060, 60, 4)]
    assert (len(dead.take()), queue.left()) == (4, (0, 0))


@pytest.mark.parametrize(
    ("limits", "stops_after", "taken"), [({"GROUP": 4}, 9, 4), ({"GROUP_BYTES": 4}, 9, 2), ({}, 9, 6), ({}, 2, 0)]
)
def test_a_group_is_bounded_and_only_its_first_message_is_waited_for(
    limits: dict[str, int],
    stops_after: int,
    taken: int,
    consumer: Callable[..., Consumer],
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue.send(*[(str(uuid4()), GOOD) for _ in range(6)])
    for name, value in {"BATCH": 2, "GROUP_BYTES": 100, **limits}.items():
        monkeypatch.setattr(sqs, name, value)
    monkeypatch.setattr(sqs, "POLL_SECONDS", 1)
    ours = consumer(stopping := Flag(), drain=False)
    receive, waits = ours._sqs.receive_message, []

    def seen(**told: Any) -> Any:
        waits.append(told["WaitTimeSeconds"])
        if len(waits) == stops_after:
            stopping.set()
        return receive(**told)

    monkeypatch.setattr(ours._sqs, "receive_message", seen)
    assert ours.process_next()
    assert sum(ours.counts.values()) == taken
    assert queue.left() == (6 - taken, 0)
    assert (waits[0], sum(waits)) == (1, 1)
    assert len(waits) <= stops_after


@pytest.mark.parametrize("seconds", [0, 25])
def test_what_is_in_hand_waits_for_no_more_of_a_queue_that_is_away_or_slow(
    seconds: int, consumer: Callable[..., Consumer], queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send(*[(str(uuid4()), GOOD) for _ in range(3)])
    monkeypatch.setattr(sqs, "BATCH", 1)
    clock = Clock()
    monkeypatch.setattr(sqs, "monotonic", lambda: clock.now)
    ours = consumer(clock, visibility=60)
    receive, asked = ours._sqs.receive_message, 0

    def answers_once(**told: Any) -> Any:
        nonlocal asked
        asked += 1
        clock.now += seconds
        if asked == 2:
            raise EndpointConnectionError(endpoint_url="https://sqs")
        return receive(**told)

    monkeypatch.setattr(ours._sqs, "receive_message", answers_once)
    assert ours.process_next()
    assert (ours.counts, asked) == ({"submissions": 1}, 1 if seconds else 2)


def test_it_ends_when_it_is_told_to_or_its_time_is_over(
    consumer: Callable[..., Consumer], queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send(*[(str(uuid4()), GOOD) for _ in range(3)])
    monkeypatch.setattr(sqs, "BATCH", 1)
    monkeypatch.setattr(sqs, "GROUP", 1)
    clock = Clock()
    monkeypatch.setattr(sqs, "monotonic", lambda: clock.now)
    ours = consumer(clock, max_runtime=10.0)
    process = ours.process_next

    def slowly() -> bool:
        clock.wait(6)
        return process()

    monkeypatch.setattr(ours, "process_next", slowly)
    ours.run()
    assert (ours.counts, queue.left()) == ({"submissions": 2}, (1, 0))
    stopped = consumer(clock)
    clock.set()
    stopped.run()
    assert queue.left() == (1, 0)


def test_a_queue_that_does_not_answer_is_not_called_empty(
    consumer: Callable[..., Consumer], queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send((str(uuid4()), GOOD))
    ours = consumer(Clock())
    receive, asked = ours._sqs.receive_message, 0

    def away_at_first(**told: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise EndpointConnectionError(endpoint_url="https://sqs")
        return receive(**told)

    monkeypatch.setattr(ours._sqs, "receive_message", away_at_first)
    ours.run()
    assert (ours.counts, asked) == ({"submissions": 1}, 4)


def test_a_fifo_queue_is_read_to_its_end(consumer: Callable[..., Consumer], dead: Queue, server: Server) -> None:
    ordered = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = server.client.create_queue(QueueName=f"q-{uuid4().hex[:8]}.fifo", Attributes=ordered)["QueueUrl"]
    for number in range(15):
        body = BAD if number == 3 else json.dumps({"n": number})
        key = {"Idempotency-Key": text(str(uuid4()))}
        server.client.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageAttributes=key)
    ours = consumer(clock := Clock(), queue=url)
    ours.run()
    assert clock.now == 1000, "nothing was waited for"
    assert ours.counts == {"submissions": 14, "refused": 1}
    assert len(dead.take()) == 1
    assert Queue(server.client, url).left() == (0, 0)


def test_a_fifo_queue_of_dead_letters_is_refused_at_the_start(queue: Queue) -> None:
    with pytest.raises(CommandError, match="may not be a FIFO queue"):
        call_command("consumesqs", queue=queue.url, client="shop", dead_letters=f"{queue.url}.fifo")

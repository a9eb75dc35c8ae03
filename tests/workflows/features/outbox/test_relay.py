"""A relay sends what is due, in order for a workflow, and marks what is still its own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from time import monotonic, time
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from tests.engine import elsewhere, with_its_connections
from tests.workflows import rows
from tests.workflows.features.outbox.conftest import SECRET
from tests.workflows.features.outbox.receiver import Receiver, receiver
from tests.workflows.operations.conftest import boss
from workflows.features.outages import circuits
from workflows.features.outages import operations as services
from workflows.features.outbox import events
from workflows.features.outbox import operations as outbox_operations
from workflows.features.outbox.destinations import destinations as read
from workflows.features.outbox.relay import LEASE, Relay, Sender
from workflows.features.outbox.sending import SENT, Outcome, Taken
from workflows.features.outbox.webhooks import Webhook
from workflows.features.retention.unsettled import why_they_stay
from workflows.models import OutboxEvent, Service, Workflow
from workflows.models.clock import ClockTimestamp

__all__ = ["boss"]

pytestmark = pytest.mark.django_db(transaction=True)

OTHER_SECRET = "whsec_" + base64.b64encode(b"o" * 24).decode()


@pytest.fixture
def crm(destinations: Callable[..., None]) -> Iterator[Receiver]:
    with receiver() as it:
        destinations(crm={"url": it.url, "secrets": [SECRET, OTHER_SECRET], "topics": ["*"]})
        yield it


class Told:
    """A sender that does as it is told, and keeps what it was given."""

    at_once = 16

    def __init__(self, *does: Callable[[Taken], Outcome]) -> None:
        self.does, self.got = list(does), []  # type: ignore[var-annotated]

    def send(self, events: Any, must_not_begin: Any) -> list[Outcome]:
        self.got.append([each.id for each in events])
        do = self.does.pop(0) if self.does else lambda _: SENT
        return [do(each) for each in events]

    def close(self) -> None: ...


def failing(error: str = "HTTP 500", **more: Any) -> Callable[[Taken], Outcome]:
    return lambda _: Outcome(error, **more)


def relay(sender: Sender | None = None, **options: Any) -> Relay:
    destination = read()["crm"]
    return Relay(destination, sender or Webhook(destination, **options), threading.Event())


def event(workflow: Workflow | None = None, **fields: Any) -> OutboxEvent:
    values = {"event_id": uuid4(), "destination": "crm", "topic": "order.paid", "body": {"n": 1}, **fields}
    made = OutboxEvent.objects.create(workflow=workflow or rows.workflow(), **values)
    made.refresh_from_db()
    return made


def now(row: OutboxEvent) -> OutboxEvent:
    return OutboxEvent.objects.get(pk=row.pk)


def later(seconds: float) -> Any:
    return ClockTimestamp() + timedelta(seconds=seconds)


def seconds_left(row: OutboxEvent) -> float:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM due_at - clock_timestamp()) FROM workflows_outboxevent WHERE id = %s", [row.pk]
        )
        return float(cursor.fetchone()[0])


def circuit() -> Service:
    return Service.objects.annotate(now=ClockTimestamp()).get(pk="outbox crm")


# --- What is sent -------------------------------------------------------------------------------


def test_an_event_is_sent_as_a_signed_cloud_event(crm: Receiver) -> None:
    row = event(body={"amount": 1.10, "name": "Zoë"})
    assert relay().send_next()
    (headers, body), (sent,) = crm.requests[0], crm.got
    subject = str(Workflow.objects.get(pk=row.workflow_id).idempotency_key)
    assert sent == {
        "specversion": "1.0",
        "id": str(row.event_id),
        "source": "onramp",
        "type": "order.paid",
        "subject": subject,
        "time": row.at.isoformat(),
        "datacontenttype": "application/json",
        "data": {"amount": 1.1, "name": "Zoë"},
    }
    assert headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert (headers["webhook-id"], abs(int(headers["webhook-timestamp"]) - time()) < 60) == (str(row.event_id), True)
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    assert headers["webhook-signature"].split(" ") == [
        "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        for key in (b"k" * 32, b"o" * 24)  # the old one and the new one, as long as both are in the setting
    ]
    assert (now(row).state, now(row).settled_at is not None) == ("sent", True)


def test_an_event_of_no_workflow_has_no_subject_and_those_of_one_that_is_gone_are_not_sent(crm: Receiver) -> None:
    rows.delete(Workflow.objects.get(pk=event().workflow_id))
    events.store(2**40, "order.paid", {}, key="1", destinations=["crm"])
    assert OutboxEvent.objects.count() == 1
    events.store(None, "second_person.wanted", {"number": 1}, key="1", destinations=["crm"])
    assert relay().send_next()
    assert [("subject" in each, each["data"]) for each in crm.got] == [(False, {"number": 1})]


def test_sent_again_it_is_the_same_but_for_its_stamp(crm: Receiver) -> None:
    crm.answers = lambda _: 204 if len(crm.got) > 1 else 500
    row = event()
    relay().send_next()
    assert (now(row).state, now(row).error) == ("", "HTTP 500")
    OutboxEvent.objects.update(due_at=later(-1))
    relay().send_next()
    assert (now(row).state, now(row).error) == ("sent", "")
    (first, body), (second, body_again) = crm.requests
    assert (first["webhook-id"], body) == (second["webhook-id"], body_again)


def test_events_of_a_workflow_go_one_after_the_other_and_those_of_others_together(crm: Receiver) -> None:
    workflow = rows.workflow()
    mine = [event(workflow, topic=f"step.{number}") for number in range(3)]
    others = [event() for _ in range(3)]
    told = Told()
    while relay(told).send_next():
        pass
    assert [sorted(batch) for batch in told.got] == [
        sorted([mine[0].pk, *(each.pk for each in others)]),
        [mine[1].pk],
        [mine[2].pk],
    ]


@pytest.mark.parametrize("state", ["", "given_up"])
def test_a_later_event_waits_until_the_earlier_one_is_sent_or_a_person_has_discarded_it(
    state: str, crm: Receiver
) -> None:
    workflow = rows.workflow()
    event(workflow, destination="another")
    first = event(workflow, state=state, due_at=later(60))
    second = event(workflow)
    assert relay().send_next() is False
    OutboxEvent.objects.filter(pk=first.pk).update(state="discarded")
    assert relay().send_next() is True
    assert crm.ids == [str(second.event_id)]


def test_what_is_discarded_in_a_relays_hands_is_not_erased_before_it_can_no_longer_go_out(
    crm: Receiver, boss: User
) -> None:
    row, found = event(rows.complete()), []

    def send(taken: Taken) -> Outcome:
        outbox_operations.discard_event(row.pk, user=boss, reason="Nobody needs it.")
        found.append(why_they_stay([row.workflow_id]))
        return SENT

    relay(Told(send)).send_next()
    for due_at in (later(-1), later(LEASE + 5)):  # its lease is over; it was to be tried again much later
        OutboxEvent.objects.update(due_at=due_at)
        found.append(why_they_stay([row.workflow_id]))
    assert found == [{row.workflow_id: "untold"}, {}, {}]


def test_what_fails_is_tried_again_later_and_later(crm: Receiver) -> None:
    row = event()
    delays = []
    for _ in range(4):
        OutboxEvent.objects.update(due_at=later(-1))
        relay(Told(failing())).send_next()
        delays.append(seconds_left(row))
    for delay, base in zip(delays, (5, 10, 20, 40), strict=True):
        assert base * 0.75 < delay < base * 1.21
    OutboxEvent.objects.update(due_at=later(-1), tries=60)
    relay(Told(failing())).send_next()
    assert seconds_left(row) < 3600 * 1.21


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        ("120", 119, 121),
        ("999999", 3599, 3601),
        ("soon", 0, 7),
        pytest.param(format_datetime(datetime.now(UTC) + timedelta(hours=9), usegmt=True), 3599, 3601, id="a date"),
        ("Sat, 01 Jan 2000 00:00:00 GMT", 0, 7),
    ],
)
def test_a_receiver_may_ask_for_time(asked: str, least: float, most: float, crm: Receiver) -> None:
    crm.answers, crm.headers = lambda _: 429, {"Retry-After": asked}
    row = event()
    relay().send_next()
    assert least < seconds_left(row) < most


def test_what_commits_late_is_sent_though_a_later_number_was_sent_before(crm: Receiver) -> None:
    late, early = rows.workflow(), rows.workflow()
    with transaction.atomic():
        first = event(late)
        second = elsewhere(lambda: event(early))
        assert first.pk < second.pk
        assert elsewhere(lambda: relay().send_next())
    assert relay().send_next()
    assert crm.ids == [str(second.event_id), str(first.event_id)]


def test_relays_that_race_send_each_event_once_and_in_its_order(crm: Receiver) -> None:
    workflows = [rows.workflow() for _ in range(10)]
    made = [event(each, body={"n": number}) for number in range(4) for each in workflows]

    def work_off() -> None:
        while OutboxEvent.objects.filter(state="").exists():
            relay().send_next()

    with ThreadPoolExecutor(3) as relays:
        list(relays.map(lambda _: with_its_connections(work_off), range(3)))
    assert sorted(crm.ids) == sorted(str(each.event_id) for each in made)
    for each in workflows:
        told = [got["data"]["n"] for got in crm.got if got["subject"] == str(each.idempotency_key)]
        assert told == [0, 1, 2, 3]


# --- A receiver that misbehaves -----------------------------------------------------------------


def test_a_receiver_that_is_silent_is_given_up_for_now(crm: Receiver) -> None:
    crm.answers = lambda _: None
    row = event()
    relay(total=0.3).send_next()
    assert (now(row).state, now(row).error) == ("", "no answer in time")


@pytest.mark.parametrize("status", [204, 302, 500, 101])
def test_the_answer_is_the_one_after_the_interim_ones_and_no_redirect_is_followed(status: int, crm: Receiver) -> None:
    crm.interim, crm.answers, crm.headers = (100, 102, 103, 103), lambda _: status, {"Location": crm.url}
    row = event()
    relay().send_next()
    told = ("sent", "") if status == 204 else ("", f"HTTP {status}")
    assert (now(row).state, now(row).error, len(crm.got)) == (*told, 1)
    assert not OutboxEvent.objects.filter(due_at__gt=timezone.now() + timedelta(seconds=500)).exists()


@pytest.mark.parametrize(("status", "drips"), [(200, b"X: "), (102, b"X: "), (102, b"\r\nHTTP/1.1 102 Processing\r\n")])
def test_a_receiver_that_drips_is_cut_off_in_the_same_time(
    status: int, drips: bytes, destinations: Callable[..., None]
) -> None:
    """A limit for each read would never end it."""
    import socket

    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 %d Some\r\n" % status)
            while not ended.wait(0.02):
                try:
                    peer.sendall(drips)
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        destinations(crm={"url": url, "secrets": [SECRET], "topics": ["*"]})
        thread = threading.Thread(target=drip, args=[listener])
        thread.start()
        row, began = event(), monotonic()
        relay(total=0.4).send_next()
        assert monotonic() - began < 5
        ended.set()
        thread.join()
    assert now(row).error == "no answer in time"


def test_nobody_there_is_an_error_of_ours(destinations: Callable[..., None]) -> None:
    destinations(crm={"url": "http://127.0.0.1:1/", "secrets": [SECRET], "topics": ["*"]})
    row = event()
    relay().send_next()
    assert now(row).error == "ConnectionRefusedError"


# --- Leases -------------------------------------------------------------------------------------


def test_what_one_relay_has_in_hand_no_other_takes(crm: Receiver) -> None:
    row = event()
    seen = []

    def look(_: Taken) -> Outcome:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_xact_id_if_assigned(), now() = statement_timestamp()")
            seen.append(cursor.fetchone())  # no transaction is open
        seen.append(elsewhere(lambda: relay(Told()).send_next()))
        return SENT

    relay(Told(look)).send_next()
    assert seen == [(None, True), False]
    assert (now(row).state, now(row).tries) == ("sent", 1)


def test_a_lease_is_over_by_the_clock_of_the_database(crm: Receiver) -> None:
    row = event()

    def vanish(_: Taken) -> Outcome:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        relay(Told(vanish)).send_next()
    assert LEASE - 5 < seconds_left(row) <= LEASE
    assert relay().send_next() is False
    OutboxEvent.objects.update(due_at=later(0))
    assert relay().send_next() is True
    assert now(row).state == "sent"


OUTCOMES = [SENT, Outcome("HTTP 500"), Outcome("not sent", is_untried=True)]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_relay_that_lost_its_lease_marks_nothing(outcome: Outcome, crm: Receiver) -> None:
    row = event()

    def overtaken(_: Taken) -> Outcome:
        def take() -> None:
            OutboxEvent.objects.update(due_at=later(-1))
            relay(Told(failing("HTTP 418"))).send_next()

        elsewhere(take)
        return outcome

    relay(Told(overtaken)).send_next()
    found = now(row)
    assert (found.state, found.error, found.tries) == ("", "HTTP 418", 2)
    assert seconds_left(row) > 5


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_another_event_that_got_its_id_after_a_failover_stays_as_it_is(outcome: Outcome, crm: Receiver) -> None:
    """The server that took over lacks the last moments: it gives the same ids out again."""
    row, others = event(), []

    def fail_over(_: Taken) -> Outcome:
        OutboxEvent.objects.filter(pk=row.pk).delete()
        others.append(event(id=row.pk, tries=1))
        return outcome

    relay(Told(fail_over)).send_next()
    assert [(now(each).state, now(each).error, now(each).due_at) for each in others] == [("", "", others[0].due_at)]


def test_an_answer_after_the_lease_counts_if_nobody_has_taken_it_since(crm: Receiver) -> None:
    row = event()

    def late(_: Taken) -> Outcome:
        OutboxEvent.objects.update(due_at=later(-1))
        return SENT

    relay(Told(late)).send_next()
    assert now(row).state == "sent"


@pytest.mark.parametrize(("state", "then"), [("given_up", "sent"), ("discarded", "discarded")])
def test_what_people_and_chores_did_meanwhile(state: str, then: str, crm: Receiver) -> None:
    row = event()

    def meanwhile(_: Taken) -> Outcome:
        OutboxEvent.objects.update(state=state)
        return SENT

    relay(Told(meanwhile)).send_next()
    assert now(row).state == then


def test_a_relay_that_stops_gives_back_what_it_has_not_begun(crm: Receiver) -> None:
    row = event()
    stopping = relay(Told(lambda _: Outcome("not sent", is_untried=True)))
    stopping.send_next()
    assert seconds_left(row) <= 0
    assert not Service.objects.exists()  # that is not an outage


def test_a_relay_that_stood_still_begins_nothing(crm: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    row = event()
    monkeypatch.setattr("workflows.features.outbox.relay.LAST_BEGIN", -1.0)
    relay().send_next()
    assert (crm.got, now(row).state) == ([], "")


# --- The circuit --------------------------------------------------------------------------------


def open_circuit(sender: Told) -> None:
    """As many failures of different workflows as it takes."""
    for _ in range(circuits.VOTES):
        event(), event()
        sender.does.append(failing())
        relay(sender).send_next()
        OutboxEvent.objects.update(due_at=later(-1))
        Service.objects.filter(opened_at=None).update(since=later(-5))


def test_a_destination_that_is_down_is_left_alone_but_for_one_trial(crm: Receiver) -> None:
    told = Told()
    open_circuit(told)
    assert circuit().opened_at is not None
    assert relay(told).send_next() is False
    Service.objects.update(retry_at=later(-1))
    told.got.clear()
    told.does.append(failing())
    assert relay(told).send_next() is True
    assert len(told.got[0]) == 1
    assert relay(told).send_next() is False
    assert circuit().cool_off > 5


def test_a_trial_takes_what_would_be_tried_later_but_nothing_in_hand_and_all_goes_on(crm: Receiver) -> None:
    told = Told()
    open_circuit(told)
    Service.objects.update(retry_at=later(-1))
    OutboxEvent.objects.update(due_at=later(LEASE - 5))  # perhaps in another relay's hands
    assert relay(told).send_next() is False
    Service.objects.update(trial_until=None)
    OutboxEvent.objects.update(due_at=later(1800))
    assert relay(told).send_next() is True
    assert circuit().opened_at is None
    while relay(told).send_next():
        pass
    assert set(OutboxEvent.objects.values_list("state", flat=True)) == {"sent"}


def test_one_of_five_that_fails_is_no_outage(crm: Receiver) -> None:
    told = Told()
    for _ in range(circuits.VOTES + 2):
        for number in range(5):
            event(topic=f"t{number}")
        told.does.append(lambda taken: Outcome("HTTP 500") if taken.topic == "t0" else SENT)
        relay(told).send_next()
        Service.objects.update(since=later(-5))
    assert circuit().opened_at is None


def test_what_fails_for_one_workflow_alone_opens_nothing(crm: Receiver) -> None:
    tries = circuits.VOTES + 1
    told = Told(*[failing()] * tries)
    event()
    for _ in range(tries):
        relay(told).send_next()
        OutboxEvent.objects.update(due_at=later(-1))
        Service.objects.update(since=later(-5))
    assert circuit().opened_at is None


def test_410_disables_a_destination_until_a_person_has_it_tried(crm: Receiver, boss: User) -> None:
    crm.answers = lambda _: 410 if len(crm.got) == 1 else 204
    first, second = event(), event()
    relay().send_next()
    Service.objects.update(opened_at=later(-86_400))
    event()
    assert relay().send_next() is False
    services.try_now("outbox crm", user=boss, reason="It is back.")
    OutboxEvent.objects.update(due_at=later(-1))
    while relay().send_next():
        pass
    assert circuit().opened_at is None
    assert (now(first).state, now(second).state) == ("sent", "sent")

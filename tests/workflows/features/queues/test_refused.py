"""What a queue's door refuses is kept, sealed and once; found, redelivered, discarded, held and erased."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from tests import engine
from tests.workflows import rows
from tests.workflows.operations.test_bulk import carry_out
from tests.workflows.undoing import ada
from workflows.api.problems import Problem
from workflows.errors import NotAllowed
from workflows.features.bulk import operations as bulk
from workflows.features.doctor import installation
from workflows.features.queues import messages, refused
from workflows.features.queues.checks import check_refused_submissions
from workflows.features.queues.refused import Came
from workflows.features.queues.submissions import Sent
from workflows.features.retention import ages, erasing
from workflows.health.counts import read
from workflows.health.health import judge
from workflows.ingress import api_keys
from workflows.models import DataKey, UndeliveredMessage, Workflow
from workflows.postgres.statements import fetch_row
from workflows.search import find, normalise
from workflows.search.search_keys import SearchKey, hashes_of_address

pytestmark = engine.ENGINE

CANARY = "canary@example.com"
EMAIL = SearchKey("email", normalise.email, only_as_hash=True)
KEY = UUID("4e896d65-a3f8-45bb-bd34-96ed05914b55")
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MISSING = Problem(400, "idempotency_key_missing", "Send a UUID of your own: Idempotency-Key: <uuid>.")


@pytest.fixture(autouse=True)
def door(engine: None, settings: Settings) -> None:
    define()
    settings.SUBMISSION_WORKFLOW = "test"
    api_keys.create("shop", tenant="north")


def define() -> None:
    engine.define([lambda *, workflow, context: None], search_keys={"email": EMAIL})


def came(offset: int = 7, *, key: str = str(KEY), body: Any = None, queue: str = "orders", **fields: Any) -> Came:
    sent = json.dumps({"email": CANARY}).encode() if body is None else body
    headers = {"idempotency-key": key, "traceparent": TRACE}
    return Came(queue, 0, offset, fields.get("sent_at_ms", 1), Sent("shop", headers, sent))


def keep(offset: int = 7, problem: Problem = MISSING, **sent: Any) -> UndeliveredMessage:
    assert refused.keep(came(offset, **sent), problem)
    return UndeliveredMessage.objects.get(offset=offset)


def stored() -> str:
    return str(fetch_row("SELECT string_agg(to_json(m)::text, '') FROM workflows_undeliveredmessage m"))


def test_it_is_kept_sealed_and_once_whatever_the_definition_says() -> None:
    row = keep()
    keep()
    assert (row.topic, row.code, row.reason) == ("submissions:orders", MISSING.code, MISSING.detail)
    assert (row.idempotency_key, [bytes(each) for each in row.hashes or ()]) == (KEY, list(hashes_of_address(CANARY)))
    assert CANARY not in stored()
    assert DataKey.objects.count() == 1, "a process without the key does not start"
    assert refused.opened(row) == came().sent
    assert refused.keep(came(sent_at_ms=2), MISSING), "of a topic that was created again"
    assert UndeliveredMessage.objects.count() == 2


@pytest.mark.parametrize("clear", [{"body": "x"}, "x", ["sealed:x"]])
def test_the_database_takes_none_in_clear(clear: Any) -> None:
    rows.undelivered_message(content=clear)
    with pytest.raises(IntegrityError, match="refused_is_sealed"):
        rows.undelivered_message(topic="submissions:orders", content=clear)


@pytest.mark.parametrize(
    ("body", "is_found"),
    [
        (b'{"email": "canary@example.com"', False),
        (b"[1]", False),
        (b"\xff", False),
        (b'{"a": NaN, "email": "%s"}', True),
    ],
)
def test_what_python_can_read_is_found_by_its_hashes(body: bytes, is_found: bool) -> None:
    assert bool(keep(body=body.replace(b"%s", CANARY.encode()), key="no uuid").hashes) == is_found
    assert UndeliveredMessage.objects.get().idempotency_key is None


# --- What is not kept ---------------------------------------------------------------------------------


def left() -> tuple[int, str]:
    row = UndeliveredMessage.objects.get(code="left_with_broker")
    return row.left_with_broker, row.state


def test_of_a_topic_no_more_are_kept_than_the_setting_says_and_the_rest_is_counted(settings: Settings) -> None:
    settings.REFUSED_SUBMISSIONS_KEPT = 2
    settled = keep(1)
    messages.discard(settled.pk, user=ada(), reason="A test.")
    dead = [(came(offset, key=""), MISSING) for offset in range(1, 6)]
    taken: list[int] = []

    def write(numbers: Any) -> list[int]:
        taken.extend(numbers)
        return list(numbers)[:1]  # the broker takes one of two

    assert refused.keep_or_leave(dead, write) == {0, 1, 2, 3}
    assert (taken, left()) == ([3, 4], (1, ""))
    assert refused.keep(came(9, queue="other"), MISSING)
    refused.count_left(Counter(orders=3))
    assert left() == (4, "")
    line = UndeliveredMessage.objects.get(code="left_with_broker")
    with pytest.raises(NotAllowed, match="broker has these"):
        messages.redeliver(line.pk, user=ada())
    with pytest.raises(NotAllowed, match="More were refused since"):
        messages.discard(line.pk, user=ada(), reason="Sent again.", seen=[1])
    messages.discard(line.pk, user=ada(), reason="Sent again.", seen=[4])
    refused.count_left(Counter(orders=1))
    assert left() == (1, "")


def test_what_is_over_the_limit_of_a_topic_that_was_created_again_is_not_taken_for_what_is_kept(
    settings: Settings,
) -> None:
    settings.REFUSED_SUBMISSIONS_KEPT = 1
    keep()
    assert not refused.keep(came(sent_at_ms=2), MISSING)


def test_what_is_too_large_is_left_to_the_broker_and_so_is_all_without_a_data_key(settings: Settings) -> None:
    large = b"x" * (256 * 1024 - len(f"idempotency-key{KEY}traceparent{TRACE}"))
    assert refused.keep(came(body=large), MISSING)
    assert not refused.keep(came(8, body=large + b"x"), MISSING)
    settings.KAFKA_SUBMISSIONS = ["orders=shop"]
    assert not list(check_refused_submissions())
    settings.DATA_KEYS = []
    assert not refused.keep(came(8), MISSING)
    assert [each.id for each in check_refused_submissions()] == ["workflows.W027"]
    settings.KAFKA_SUBMISSIONS = []
    assert not list(check_refused_submissions())


def test_nothing_is_left_to_the_broker_or_done_with_while_the_database_is_away(monkeypatch: Any) -> None:
    def away(*_: Any) -> Any:
        raise refused.DatabaseUnavailable

    written: list[int] = []
    monkeypatch.setattr(refused, "keep", away)
    assert refused.keep_or_leave([(came(), MISSING)], lambda numbers: written.extend(numbers) or ()) == set()
    assert written == []
    monkeypatch.setattr(refused, "keep", lambda *_: False)
    monkeypatch.setattr(refused, "count_left", away)
    assert refused.keep_or_leave([(came(), MISSING)], lambda numbers: numbers) == set(), "it is counted next time"


@pytest.mark.parametrize("headers", [{}, {"idempotency-key": str(KEY)}])
def test_what_http_refuses_is_never_stored(headers: dict[str, str]) -> None:
    key = api_keys.create("other")
    answer = Client().post(
        "/v1/submissions", b"{", "application/json", headers={"Authorization": f"Bearer {key}", **headers}
    )
    assert answer.status_code == 400
    assert not UndeliveredMessage.objects.exists()


# --- What people do -----------------------------------------------------------------------------------


def test_it_is_redelivered_through_the_door_once_and_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    first, again = keep(1), keep(2)
    for row in (first, again):
        messages.redeliver(row.pk, user=ada(), reason="The client is let in.")
    workflow = Workflow.objects.get()
    assert (workflow.idempotency_key, workflow.submitted_by, workflow.tenant) == (KEY, "shop", "north")
    assert (workflow.payload, workflow.traceparent) == ({"email": CANARY}, TRACE)
    first.refresh_from_db()
    assert (first.state, first.content, first.hashes) == ("redelivered", [], None)
    entry = LogEntry.objects.latest("id")
    assert entry.change_message == "Redelivered. The client is let in."
    assert entry.object_repr == "refused submission 0:2 of orders"


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({"key": ""}, "refused again. Send a UUID"),
        ({"body": b"{"}, "refused again"),
        ({"body": b'{"other": 1}'}, "for another payload"),
    ],
)
def test_one_that_is_refused_again_says_why_and_stays(sent: dict[str, Any], says: str) -> None:
    messages.redeliver(keep(1).pk, user=ada())
    row = keep(2, **sent)
    with pytest.raises(NotAllowed, match=says):
        messages.redeliver(row.pk, user=ada())
    row.refresh_from_db()
    assert (row.state, refused.opened(row), Workflow.objects.count()) == ("", came(**sent).sent, 1)


def test_one_of_a_client_without_a_key_waits(settings: Settings) -> None:
    row = keep()
    api_keys.ApiKey.objects.all().delete()
    api_keys.table.invalidate()
    with pytest.raises(NotAllowed, match="no valid key"):
        messages.redeliver(row.pk, user=ada())
    api_keys.create("shop")
    settings.DATA_KEYS = ["another-and-long-enough-for-the-check"]
    with pytest.raises(NotAllowed, match="cannot be read"):
        messages.redeliver(row.pk, user=ada())


def test_many_are_discarded_and_emptied_in_bulk() -> None:
    user = User.objects.create_superuser("boss")
    for offset in range(3):
        keep(offset)
    refused.count_left(Counter(orders=2))
    every = UndeliveredMessage.objects.order_by().values("pk")
    made = bulk.choose("discard", every, user=user, chosen_by="all of them")
    bulk.start(made.pk, user=user, reason="They were sent by hand.")
    refused.count_left(Counter(orders=2))
    with transaction.atomic():
        carry_out(made)
    assert bulk.outcomes(made)[made.pk] == {"": 0, "done": 3, "skipped": 1, "failed": 0}
    assert left() == (4, ""), "nobody was told of the last two"
    assert not UndeliveredMessage.objects.exclude(content=[]).exists()


# --- Retention ----------------------------------------------------------------------------------------


def old(row: UndeliveredMessage) -> int:
    UndeliveredMessage.objects.filter(pk=row.pk).update(created_at=timezone.now() - timedelta(days=91))
    (table,) = (each for each in ages.OLD if each.table == "workflows_undeliveredmessage")
    return ages.forget(table).changed


def test_what_a_legal_hold_is_on_stays_and_goes_when_it_has_ended() -> None:
    (address, *_) = hashes_of_address(CANARY)
    hold = rows.legal_hold(hash=address)
    row = keep()
    assert old(row) == 0, "it is open"
    messages.discard(row.pk, user=ada(), reason="A test.")
    row.refresh_from_db()
    assert (row.state, refused.opened(row), old(row)) == ("discarded", came().sent, 0)
    hold.until = timezone.now()
    hold.save()
    assert old(row) == 1


def test_what_a_legal_hold_keeps_is_sealed_under_the_new_key(settings: Settings) -> None:
    rows.legal_hold(hash=next(iter(hashes_of_address(CANARY))))
    row = keep()
    messages.discard(row.pk, user=ada(), reason="A test.")
    refused.count_left(Counter(orders=1))
    settings.DATA_KEYS = ["another-and-long-enough-for-the-check", *settings.DATA_KEYS]
    call_command("datakeys", "rotate", stdout=StringIO())
    settings.DATA_KEYS = settings.DATA_KEYS[:1]
    row.refresh_from_db()
    assert (refused.opened(row), left()) == (came().sent, (1, ""))


def leads() -> Iterator[User]:
    for name in ("lena", "lars"):
        yield User.objects.create_superuser(name, email=f"{name}@example.com")


def test_an_erasure_reaches_what_nobody_has_settled() -> None:
    asks, approves = leads()
    row, other = keep(1), keep(2, body=b'{"email": "other@example.com"}')
    asked = erasing.ask(user=asks, reason="Ticket 7", email=CANARY.upper())
    assert (asked.workflows, asked.messages) == ([], [row.pk])
    hold = rows.legal_hold(hash=next(iter(hashes_of_address(CANARY))))
    with pytest.raises(NotAllowed, match="legal hold"):
        erasing.approve(asked.pk, user=approves)
    hold.delete()
    erasing.approve(asked.pk, user=approves)
    for each in (row, other):
        each.refresh_from_db()
    assert (row.state, row.content, row.hashes) == ("discarded", [], None)
    assert (other.state, bool(other.hashes)) == ("", True)
    assert CANARY not in LogEntry.objects.get().change_message
    with pytest.raises(NotAllowed, match="Nothing of this person"):
        erasing.ask(user=asks, reason="Ticket 7", email=CANARY)


def test_the_search_keys_are_rotated_with_those_of_workflows(settings: Settings) -> None:
    row = keep()
    settings.SEARCH_KEYS = ["another-and-long-enough-for-the-check", *settings.SEARCH_KEYS]
    call_command("searchkeys", "rotate", stdout=StringIO())
    settings.SEARCH_KEYS = settings.SEARCH_KEYS[:1]
    row.refresh_from_db()
    assert bytes((row.hashes or [b""])[0]) in hashes_of_address(CANARY)


# --- Where people look --------------------------------------------------------------------------------


def page(client: Client, url: str, **sent: str) -> str:
    answer = client.post(url, sent, follow=True) if sent else client.get(url)
    assert answer.status_code == 200, url
    return " ".join(answer.content.decode().split())


def test_people_find_and_are_told_of_it(settings: Settings, client: Client) -> None:
    row = keep()
    keep(8, problem=Problem(422, "null_character", "It has a NUL."), queue="other", body=b"{}")
    client.force_login(User.objects.create_superuser("boss", email="boss@example.com"))
    listed, url = "/admin/workflows/undeliveredmessage/", f"/admin/workflows/undeliveredmessage/{row.pk}/change/"
    assert f'href="{url}"' in page(client, "/admin/find/", q=CANARY)
    assert f'href="{url}"' in page(client, "/admin/find/", q=str(KEY))
    assert "Refused before" not in page(client, "/admin/find/", q="other@example.com")
    shown = page(client, url)
    assert "refused submission 0:7 of orders" in shown
    assert str(KEY) in shown
    assert CANARY not in shown
    for query, number in (("topic=submissions:orders", 1), ("code=null_character", 1), ("state=open", 2)):
        assert page(client, f"{listed}?{query}").count("refused submission 0:") == 2 * number, query
    needs = page(client, "/admin/needs-a-person/")
    assert "1 submission of orders was refused." in needs
    refused.count_left(Counter(orders=1200))
    assert "Only the broker&#x27;s dead letters have 1,200 refused submissions of orders." in page(
        client, "/admin/needs-a-person/"
    )
    line = UndeliveredMessage.objects.get(code="left_with_broker")
    assert "/redeliver/" not in page(client, f"{listed}{line.pk}/change/")
    settings.METRICS_TOKEN = "token"
    metrics = Client().get("/metrics", headers={"Authorization": "Bearer token"}).content.decode()
    assert 'onramp_undelivered_messages{topic="submissions:orders"} 1.0' in metrics
    assert 'onramp_refused_left_with_broker{queue="orders"} 1200.0' in metrics
    assert [(each.level.name, each.what.split(" of ")[0]) for each in installation.refused()] == [
        ("WARNING", "1 submissions"),
        ("WARNING", "1 submissions"),
        ("CRITICAL", "1,200 refused submissions"),
    ]
    home = str(judge(read()))
    assert "2 submissions were refused at queues" in home
    assert "1,200 refused submissions are in a broker's dead letters only" in home
    messages.discard(row.pk, user=ada(), reason="A test.")
    assert "Refused before" not in page(client, "/admin/find/", q=CANARY)
    assert "discarded" in page(client, "/admin/find/", q=str(KEY))


def test_a_search_reads_its_indexes() -> None:
    UndeliveredMessage.objects.bulk_create(
        UndeliveredMessage(
            topic="facts",
            partition=0,
            offset=n,
            code="x",
            reason="x",
            idempotency_key=uuid4(),
            hashes=[uuid4().bytes],
        )
        for n in range(2000)
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE workflows_undeliveredmessage")
        cursor.execute(f"EXPLAIN {find._REFUSED}", {"hashes": [b"x"], "key": KEY, "limit": 50})
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "undelivered_of_hash" in plan
    assert "undelivered_of_key" in plan

import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.processes import until
from tests.servers import Proxy, connecting_to
from tests.workflows import rows
from tests.workflows.api.answers import assert_problem
from workflows import inbox
from workflows.api import requests
from workflows.ingress import api_keys, webhooks
from workflows.models import Signal, Workflow

pytestmark = pytest.mark.django_db

CANARY = "canary-7f3a"


@pytest.fixture
def client() -> Client:
    return Client(enforce_csrf_checks=True)


@pytest.fixture
def secret() -> str:
    return webhooks.create("parcels")


@pytest.fixture
def key() -> str:
    return api_keys.create("shop")


def signed(secret: str, body: bytes, *, delivery_id: str = "msg_1", at: float | None = None) -> dict[str, str]:
    """The headers of a delivery."""
    timestamp = str(int(time.time() if at is None else at))
    signature = webhooks.sign(webhooks.key_of(secret), f"{delivery_id}.{timestamp}.".encode() + body)
    return {"Webhook-Id": delivery_id, "Webhook-Timestamp": timestamp, "Webhook-Signature": signature.decode()}


def deliver(
    client: Client,
    secret: str,
    body: dict[str, Any] | bytes,
    *,
    source: str = "parcels",
    delivery_id: str = "msg_1",
    content_type: str = "application/json",
    **headers: str,
) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {**signed(secret, content, delivery_id=delivery_id), **{n.replace("_", "-"): v for n, v in headers.items()}}
    return client.post(
        f"/v1/signals/{source}", content, content_type=content_type, headers={n: v for n, v in sent.items() if v}
    )


def tell(client: Client, key: str, workflow: object, body: dict[str, Any] | bytes, **headers: str) -> Any:
    sent = {"Authorization": f"Bearer {key}", "Idempotency-Key": str(uuid4()), **headers}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(
        f"/v1/workflows/{workflow}/signals",
        content,
        content_type="application/json",
        headers={n: v for n, v in sent.items() if v},
    )


DELIVERED = {"name": "parcel.delivered", "linking_id": "acc-1", "payload": {"at": "noon"}}


def waiting(**fields: Any) -> Workflow:
    """A workflow that waits for a parcel."""
    return rows.waiting(task=False, wake_on=["parcel.delivered"], **fields)


# --- Webhooks ---------------------------------------------------------------------------------------


def test_a_webhook_becomes_a_signal_for_its_linking_id_and_wakes_who_waits(client: Client, secret: str) -> None:
    workflow = waiting(linking_id="acc-1")
    response = deliver(client, secret, DELIVERED)
    assert (response.status_code, response.json()) == (202, {"replayed": False})
    signal = Signal.objects.get()
    assert (signal.source, signal.dedupe_key, signal.name) == ("parcels", "msg_1", "parcel.delivered")
    assert (signal.linking_id, signal.workflow_id, signal.payload) == ("acc-1", None, {"at": "noon"})
    assert (signal.closed_at, signal.ignored) == (None, False)
    workflow.refresh_from_db()
    assert workflow.invisible_until <= workflow.created_at


def test_a_webhook_may_name_the_workflow_by_its_key(client: Client, secret: str) -> None:
    workflow = waiting()
    body = {"name": "parcel.delivered", "workflow": workflow.key.upper(), "linking_id": None}
    assert deliver(client, secret, body).status_code == 202
    signal = Signal.objects.get()
    assert (signal.linking_id, signal.workflow_id, signal.payload) == (None, workflow.pk, {})
    workflow.refresh_from_db()
    assert workflow.invisible_until <= workflow.created_at


def test_a_signal_may_come_before_its_workflow(client: Client, secret: str) -> None:
    assert deliver(client, secret, DELIVERED).status_code == 202
    workflow = waiting(linking_id="acc-1")
    assert inbox.wake(workflow.pk)


def test_a_delivery_repeated_is_told_once(client: Client, secret: str) -> None:
    assert deliver(client, secret, DELIVERED).json() == {"replayed": False}
    respelt = json.dumps({**DELIVERED, "payload": {"at": "noon"}}, indent=2).encode()
    for body in (DELIVERED, respelt):
        response = deliver(client, secret, body)
        assert (response.status_code, response.json()) == (202, {"replayed": True})
    assert Signal.objects.count() == 1


def test_an_old_delivery_played_again_within_the_tolerance_is_a_duplicate(client: Client, secret: str) -> None:
    body = json.dumps(DELIVERED).encode()
    headers = signed(secret, body, at=time.time() - 290)
    for replayed in (False, True):
        response = client.post("/v1/signals/parcels", body, content_type="application/json", headers=headers)
        assert response.json() == {"replayed": replayed}
    assert Signal.objects.count() == 1


@pytest.mark.parametrize(
    "change", [{"name": "parcel.lost"}, {"linking_id": "acc-2"}, {"payload": {}}, {"payload": {"at": 1}}]
)
def test_an_id_used_for_something_else_is_refused(client: Client, secret: str, change: dict[str, Any]) -> None:
    deliver(client, secret, DELIVERED)
    assert_problem(deliver(client, secret, {**DELIVERED, **change}), 422, "webhook_id_reused")
    assert Signal.objects.get().payload == {"at": "noon"}


def test_the_same_id_of_two_sources_is_two_signals(client: Client, secret: str) -> None:
    other = webhooks.create("others")
    for source, of in (("parcels", secret), ("others", other)):
        assert deliver(client, of, DELIVERED, source=source).json() == {"replayed": False}
    assert Signal.objects.count() == 2


def test_the_same_delivery_at_once_is_one_signal(client: Client, transactional_db: None) -> None:
    secret = webhooks.create("parcels")
    barrier = threading.Barrier(8, timeout=20)

    def send(_: int) -> Any:
        with closing(connection):
            barrier.wait()
            return deliver(Client(), secret, DELIVERED)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(8)))
    assert [answer.status_code for answer in answers] == [202] * 8
    assert sorted(answer.json()["replayed"] for answer in answers) == [False] + [True] * 7
    assert Signal.objects.count() == 1


def test_every_digit_of_a_number_is_kept(client: Client, secret: str) -> None:
    body = b'{"linking_id":"a","payload":{"amount":12345678901234567890.123456789000},"name":"paid"}'
    assert deliver(client, secret, body).status_code == 202
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload->>'amount' FROM workflows_signal")
        assert cursor.fetchone() == ("12345678901234567890.123456789000",)


# --- Who has signed -------------------------------------------------------------------------------------


def test_a_secret_is_replaced_without_losing_a_delivery(client: Client, secret: str) -> None:
    new = webhooks.create("parcels")
    assert deliver(client, secret, DELIVERED, delivery_id="1").status_code == 202
    assert deliver(client, new, DELIVERED, delivery_id="2").status_code == 202
    webhooks.revoke(webhooks.find(secret).get())
    assert_problem(deliver(client, secret, DELIVERED, delivery_id="3"), 401, "webhook_signature_invalid")
    assert deliver(client, new, DELIVERED, delivery_id="4").status_code == 202
    body = json.dumps(DELIVERED).encode()
    both = f"{signed(secret, body, delivery_id='5')['Webhook-Signature']} "
    both += signed(new, body, delivery_id="5")["Webhook-Signature"]
    assert deliver(client, new, body, delivery_id="5", Webhook_Signature=both).status_code == 202
    assert Signal.objects.count() == 4


def test_an_unknown_source_is_refused_like_a_wrong_signature(client: Client, secret: str) -> None:
    refused = [deliver(client, webhooks.create("others"), DELIVERED)]
    for source in ("unknown", "UPPER", "a%00b", "%C3%A9", "api:shop", "console", "x" * 300):
        refused.append(deliver(client, secret, DELIVERED, source=source))
    webhooks.revoke(webhooks.find(secret).get())
    refused.append(deliver(client, secret, DELIVERED))
    for response in refused:
        assert_problem(response, 401, "webhook_signature_invalid")
        assert response.content == refused[0].content
        assert response.headers == refused[0].headers
    assert "WWW-Authenticate" in refused[0].headers
    assert not Signal.objects.exists()


@pytest.mark.parametrize("header", ["Webhook_Id", "Webhook_Timestamp", "Webhook_Signature"])
def test_a_delivery_without_one_of_its_headers_is_401(client: Client, secret: str, header: str) -> None:
    assert_problem(deliver(client, secret, DELIVERED, **{header: ""}), 401, "webhook_signature_missing")
    assert not Signal.objects.exists()


@pytest.mark.parametrize("seconds", [-302, 302, -86400, 10**9])
def test_a_delivery_of_another_time_is_401_though_it_is_signed(client: Client, secret: str, seconds: int) -> None:
    body = json.dumps(DELIVERED).encode()
    headers = signed(secret, body, at=time.time() + seconds)
    response = client.post("/v1/signals/parcels", body, content_type="application/json", headers=headers)
    assert_problem(response, 401, "webhook_timestamp_stale")
    assert not Signal.objects.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"Webhook_Id": "msg_2"},
        {"Webhook_Timestamp": "in a minute"},
        {"Webhook_Signature": "v1,AAAA"},
        {"Webhook_Signature": "x"},
        {"Webhook_Signature": "v1,é"},
    ],
)
def test_a_delivery_that_was_changed_on_its_way_is_401(client: Client, secret: str, change: dict[str, str]) -> None:
    if "Webhook_Timestamp" in change:  # now, and not when the tests were collected
        change = {"Webhook_Timestamp": str(int(time.time()) + 60)}
    assert_problem(deliver(client, secret, DELIVERED, **change), 401, "webhook_signature_invalid")
    body = json.dumps(DELIVERED).encode()
    headers = signed(secret, body)
    changed = client.post("/v1/signals/parcels", body + b" ", content_type="application/json", headers=headers)
    assert_problem(changed, 401, "webhook_signature_invalid")
    assert not Signal.objects.exists()


@pytest.mark.parametrize("body", [b" ", b"{", b'{"a":"\\u0000"}', b"\xff", b'{"name":"cancel"}'])
@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
def test_nothing_is_said_of_a_body_that_nobody_has_signed(
    client: Client, secret: str, body: bytes, content_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests.jsonb, "parse", lambda body: pytest.fail("it was parsed"))
    response = deliver(client, secret, body, content_type=content_type, Webhook_Signature="v1,AAAA")
    assert_problem(response, 401, "webhook_signature_invalid")


@pytest.mark.parametrize("delivery_id", ["x" * 201, "a b", "é", "a\tb"])
def test_an_id_that_cannot_be_kept_is_400(client: Client, secret: str, delivery_id: str) -> None:
    content = json.dumps(DELIVERED).encode()
    now = str(int(time.time()))
    signature = webhooks.sign(webhooks.key_of(secret), f"{delivery_id}.{now}.".encode("latin-1") + content).decode()
    response = deliver(
        client, secret, content, Webhook_Id=delivery_id, Webhook_Timestamp=now, Webhook_Signature=signature
    )
    assert_problem(response, 400, "webhook_id_invalid")
    assert not Signal.objects.exists()


def test_an_id_of_the_longest_length_is_taken(client: Client, secret: str) -> None:
    assert deliver(client, secret, DELIVERED, delivery_id="x" * 200).status_code == 202


# --- What is told -----------------------------------------------------------------------------------

A_KEY = "5d0f6c1e-8a53-4a6b-9c55-0e6f1b7d2a94"

BODIES: list[tuple[bytes | dict[str, Any], int, str]] = [
    (b" ", 400, "malformed_json"),
    (b'{"canary-7f3a"', 400, "malformed_json"),
    (b'["canary-7f3a"]', 400, "not_an_object"),
    (b'{"a":"canary-7f3a\xff"}', 400, "not_utf8"),
    (b'{"name":"a","linking_id":"a","payload":{"a":"canary-7f3a\\u0000"}}', 422, "null_character"),
    (b'{"name":"a","linking_id":"a\\ud800"}', 422, "lone_surrogate"),
    (b'{"name":"a","linking_id":"a","payload":{"a":NaN}}', 422, "not_finite"),
    (b'{"name":"a","name":"b","linking_id":"a"}', 422, "duplicate_name"),
    (b'{"name":"a","linking_id":"a","payload":{"a":' + b"[" * 70 + b"]" * 70 + b"}}", 422, "too_deep"),
    ({"linking_id": "a"}, 422, "signal_name_invalid"),
    ({"name": 1, "linking_id": "a"}, 422, "signal_name_invalid"),
    *(
        ({"name": name, "linking_id": "a"}, 422, "signal_name_invalid")
        for name in ("", "cancel", "decision:1", "child:a", "canary-7f3a:a", ".a", "a b", "é", "x" * 200, "a\n")
    ),
    ({"name": "a", "linking_id": "a", "payload": "canary-7f3a"}, 422, "signal_payload_invalid"),
    ({"name": "a", "linking_id": "a", "payload": ["canary-7f3a"]}, 422, "signal_payload_invalid"),
    ({"name": "a", "linking_id": "a", "canary-7f3a": 1}, 422, "field_unknown"),
    ({"name": "a"}, 422, "signal_address_invalid"),
    ({"name": "a", "linking_id": None, "workflow": None}, 422, "signal_address_invalid"),
    ({"name": "a", "linking_id": "canary-7f3a", "workflow": A_KEY}, 422, "signal_address_invalid"),
    ({"name": "a", "workflow": 1}, 422, "signal_address_invalid"),
    ({"name": "a", "workflow": {"a": "canary-7f3a"}}, 422, "signal_address_invalid"),
    ({"name": "a", "linking_id": ""}, 422, "linking_id_invalid"),
    ({"name": "a", "linking_id": 1}, 422, "linking_id_invalid"),
    ({"name": "a", "linking_id": "canary-7f3a" * 20}, 422, "linking_id_invalid"),
    ({"name": "a", "workflow": A_KEY}, 404, "workflow_not_found"),
    ({"name": "a", "workflow": "canary-7f3a"}, 404, "workflow_not_found"),
    ({"name": "a", "workflow": A_KEY.replace("-", "")}, 404, "workflow_not_found"),
]


@pytest.mark.parametrize(("body", "status", "code"), BODIES)
def test_what_is_refused_of_a_webhook_leaves_no_row_and_no_trace(
    client: Client,
    secret: str,
    body: bytes | dict[str, Any],
    status: int,
    code: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    response = deliver(client, secret, body)
    assert_problem(response, status, code)
    assert CANARY.encode() not in response.content
    assert CANARY not in caplog.text
    assert secret not in caplog.text
    assert not Signal.objects.exists()


def test_linking_ids_and_names_of_the_longest_length_are_taken(client: Client, secret: str) -> None:
    assert deliver(client, secret, {"name": "x" * 199, "linking_id": "é" * 200}).status_code == 202


def test_a_question_to_a_person_cannot_be_answered_from_outside(client: Client, secret: str, key: str) -> None:
    workflow = rows.waiting()
    name = workflow.wake_on[0] if workflow.wake_on else "decision:1"
    body = {"name": name, "payload": {"approved": True}}
    assert_problem(deliver(client, secret, {**body, "workflow": workflow.key}), 422, "signal_name_invalid")
    assert_problem(tell(client, key, workflow.key, body), 422, "signal_name_invalid")
    assert not Signal.objects.exists()


def test_the_sizes_and_types_of_a_webhook_are_those_of_a_submission(client: Client, secret: str) -> None:
    largest = json.dumps({**DELIVERED, "payload": {"a": ""}}).encode()
    largest = largest.replace(b'"a": ""', b'"a": "' + b"x" * (requests.MAX_BYTES - len(largest)) + b'"')
    assert deliver(client, secret, largest, delivery_id="1").status_code == 202
    assert_problem(deliver(client, secret, largest + b" ", delivery_id="2"), 413, "too_large")
    assert_problem(deliver(client, secret, largest * 4, delivery_id="2"), 413, "too_large")
    assert_problem(deliver(client, secret, DELIVERED, Transfer_Encoding="chunked"), 411, "length_required")
    assert_problem(deliver(client, secret, DELIVERED, content_type="text/plain"), 415, "unsupported_media_type")
    assert_problem(deliver(client, secret, DELIVERED, Content_Encoding="gzip"), 415, "unsupported_content_encoding")
    assert Signal.objects.count() == 1


@pytest.mark.parametrize("ended", [rows.complete, rows.failed, rows.cancelled])
def test_what_a_workflow_that_has_ended_is_told_is_stored_as_ignored(
    client: Client, secret: str, key: str, ended: Callable[[], Workflow]
) -> None:
    workflow = ended()
    body = {"name": "parcel.delivered", "payload": {}}
    assert deliver(client, secret, {**body, "workflow": workflow.key}).status_code == 202
    assert tell(client, key, workflow.key, body).status_code == 202
    assert [(s.ignored, s.closed_at is not None) for s in Signal.objects.all()] == [(True, True)] * 2


@pytest.mark.parametrize("path", ["/v1/signals/parcels", f"/v1/workflows/{A_KEY}/signals"])
def test_another_method_is_405(client: Client, path: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        response = client.generic(method, path)
        assert_problem(response, 405, "method_not_allowed")
        assert response.headers["Allow"] == "POST"


# --- API clients --------------------------------------------------------------------------------------


def test_an_api_client_tells_any_workflow_whose_key_it_knows(client: Client, key: str) -> None:
    workflow = waiting(submitted_by="another")
    response = tell(client, key, workflow.key, {"name": "parcel.delivered", "payload": {"at": "noon"}})
    assert (response.status_code, response.json()) == (202, {"replayed": False})
    signal = Signal.objects.get()
    assert (signal.source, signal.workflow_id, signal.payload) == ("api:shop", workflow.pk, {"at": "noon"})
    workflow.refresh_from_db()
    assert workflow.invisible_until <= workflow.created_at


def test_what_an_api_client_repeats_is_told_once_and_a_key_for_one_thing(client: Client, key: str) -> None:
    workflow, other = waiting(), waiting()
    sent = {"Idempotency-Key": str(uuid4())}
    body = {"name": "parcel.delivered", "payload": {"at": "noon"}}
    assert tell(client, key, workflow.key, body, **sent).json() == {"replayed": False}
    again = tell(client, key, workflow.key, body, **{"Idempotency-Key": sent["Idempotency-Key"].upper()})
    assert (again.status_code, again.json()) == (202, {"replayed": True})
    for where, told in (
        (other, body),
        (workflow, {**body, "payload": {}}),
        (workflow, {**body, "name": "parcel.lost"}),
    ):
        assert_problem(tell(client, key, where.key, told, **sent), 422, "idempotency_key_reused")
    assert Signal.objects.count() == 1
    another = api_keys.create("another")
    assert tell(client, another, workflow.key, body, **sent).json() == {"replayed": False}


def test_what_is_refused_to_an_api_client_leaves_no_row(client: Client, key: str) -> None:
    workflow = waiting()
    body = {"name": "parcel.delivered", "payload": {"a": CANARY}}
    for response, status, code in (
        (tell(client, key, workflow.key, body, Authorization=""), 401, "api_key_missing"),
        (tell(client, key + "x", workflow.key, body), 401, "api_key_invalid"),
        (tell(client, key, workflow.key, body, **{"Idempotency-Key": ""}), 400, "idempotency_key_missing"),
        (tell(client, key, workflow.key, body, **{"Idempotency-Key": "1"}), 400, "idempotency_key_invalid"),
        (tell(client, key, uuid4(), body), 404, "workflow_not_found"),
        (tell(client, key, workflow.pk, body), 404, "workflow_not_found"),
        (tell(client, key, workflow.key, {**body, "linking_id": "a"}), 422, "field_unknown"),
        (tell(client, key, workflow.key, {**body, "name": "cancel"}), 422, "signal_name_invalid"),
        (tell(client, key, workflow.key, {**body, "payload": 1}), 422, "signal_payload_invalid"),
        (tell(client, key, workflow.key, b"{"), 400, "malformed_json"),
        (tell(client, key, workflow.key, b" " * 1024 * 1024), 413, "too_large"),
    ):
        assert_problem(response, status, code)
        assert CANARY.encode() not in response.content
    assert not Signal.objects.exists()


# --- The database -----------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_payload_is_never_in_the_text_of_a_statement(client: Client) -> None:
    """Looked at while the insert waits for another session's signal of the same id."""
    secret = webhooks.create("parcels")

    def send() -> Any:
        with closing(connection):
            return deliver(Client(), secret, {**DELIVERED, "payload": {"a": CANARY}})

    with psycopg.connect(**connection.get_connection_params()) as other, ThreadPoolExecutor(1) as pool:
        other.execute(
            "INSERT INTO workflows_signal (source, dedupe_key, name, linking_id) VALUES ('parcels', 'msg_1', 'a', 'a')"
        )
        sent = pool.submit(send)
        waits_for_us = [other.info.backend_pid]
        blocked = "NOT granted AND %s = ANY (pg_blocking_pids(pid))"
        until(lambda: sent.done() or other.execute(f"SELECT 1 FROM pg_locks WHERE {blocked}", waits_for_us).fetchall())
        # Only now: of a statement that has just begun to wait, the first look could see the text of the one before.
        shown = other.execute(
            "SELECT query FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))", waits_for_us
        ).fetchall()
        other.rollback()
    [(statement,)] = shown
    assert "INSERT INTO workflows_signal" in statement
    assert CANARY not in statement
    assert sent.result().status_code == 202


@pytest.mark.django_db(transaction=True)
def test_a_linking_id_is_never_in_the_text_of_a_statement(client: Client) -> None:
    """It may be an e-mail address. (What Django has not captured was sent with its parameters beside it.)"""
    secret, workflow = webhooks.create("parcels"), waiting(linking_id=CANARY)
    with CaptureQueriesContext(connection) as queries:
        assert deliver(client, secret, {**DELIVERED, "linking_id": CANARY}).status_code == 202
    workflow.refresh_from_db()
    assert workflow.invisible_until <= workflow.created_at
    assert not any(CANARY in query["sql"] for query in queries)


@pytest.mark.django_db(transaction=True)
def test_a_wake_up_that_fails_takes_nothing_back(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, workflow = webhooks.create("parcels"), waiting()

    def fail(*args: Any) -> None:
        raise OperationalError("the server is gone")

    monkeypatch.setattr(inbox, "wake", fail)
    body = {"name": "parcel.delivered", "workflow": workflow.key}
    assert deliver(client, secret, body).json() == {"replayed": False}
    monkeypatch.undo()
    assert deliver(client, secret, body).json() == {"replayed": True}
    assert inbox.sweep() == 1


@pytest.mark.django_db(transaction=True)
def test_a_commit_whose_answer_was_lost_is_told_once(client: Client) -> None:
    secret, workflow = webhooks.create("parcels"), waiting()
    body = {"name": "parcel.delivered", "workflow": workflow.key}
    with Proxy() as proxy, connecting_to(proxy.port):
        assert deliver(client, secret, body, delivery_id="1").status_code == 202  # from here on the connection is known
        proxy.drops_answers_about, proxy.answers_to_drop = b"workflows_signal", 1
        assert deliver(client, secret, body, delivery_id="2").status_code == 202
        assert proxy.answers_dropped == 1
    assert Signal.objects.filter(dedupe_key="2").count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_database_that_is_away_or_falls_silent_is_503_and_the_same_again_is_harmless(client: Client) -> None:
    secret, workflow, key = webhooks.create("parcels"), waiting(), api_keys.create("shop")
    body = {"name": "parcel.delivered", "workflow": workflow.key}
    with Proxy() as proxy, connecting_to(proxy.port):
        assert deliver(client, secret, body, delivery_id="1").status_code == 202
        assert tell(client, key, workflow.key, {"name": "a"}).status_code == 202
        proxy.fall_silent()
        started = time.monotonic()
        assert_problem(deliver(client, secret, body, delivery_id="2"), 503, "database_unavailable")
        assert time.monotonic() - started < 15
        proxy.cut()
        assert_problem(deliver(client, secret, body, delivery_id="2"), 503, "database_unavailable")
        assert_problem(tell(client, key, workflow.key, {"name": "a"}), 503, "database_unavailable")
        proxy.connect()
        assert deliver(client, secret, body, delivery_id="2").status_code == 202
    assert Signal.objects.filter(dedupe_key="2").count() == 1

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db.models.functions import Now
from django.test import Client, override_settings

from tests.asgi import Served, served
from tests.workflows.api.answers import assert_problem
from workflows import request_ids
from workflows.api import requests, submissions
from workflows.ingress import api_keys
from workflows.intake.submissions import submission_definition
from workflows.models import SearchKeyHash, Wait, Workflow
from workflows.wording import ENGINE_CODES

pytestmark = pytest.mark.django_db

URL = "/v1/submissions"
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


ASGI = pytest.param("asgi", marks=pytest.mark.django_db(transaction=True))  # it has a connection of its own


@pytest.fixture(params=["config.wsgi", ASGI])
def client(request: pytest.FixtureRequest) -> Iterator[Client | Served]:
    if request.param != "asgi":
        yield Client(enforce_csrf_checks=True)
        return
    with served(submission_definition()) as intake:
        yield intake


@pytest.fixture
def view() -> Client:
    """Django's view alone."""
    return Client(enforce_csrf_checks=True)


def post(client: Client, key: str, body: str | bytes = "{}", **headers: str) -> Any:
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": str(uuid4()), **headers}
    content_type = headers.pop("content_type", "application/json")
    return client.post(URL, body, content_type=content_type, headers={n: v for n, v in headers.items() if v})


def test_a_submission_is_accepted_and_found(client: Client, key: str) -> None:
    sent = uuid4()
    response = post(client, key, '{"a": 1}', **{"Idempotency-Key": str(sent).upper()})
    assert response.status_code == 202
    row = Workflow.objects.get(idempotency_key=sent)
    assert response.json() == {"id": row.pk, "status": "PENDING", "state": "queued", "replayed": False}
    assert row.submitted_by == "shop"
    found = client.get(response.headers["Location"], headers={"Authorization": f"bearer {key}"})
    assert found.status_code == 200
    answer = found.json()
    assert answer.keys() == {"id", "status", "state", "created_at", "completed_at", "message"}
    assert (answer["id"], answer["status"], answer["state"]) == (row.pk, "PENDING", "queued")
    failed = {"status": "FAILED", "last_error_code": "duplicate_of", "completed_at": row.created_at}
    Workflow.objects.filter(pk=row.pk).update(**failed)
    answer = client.get(response.headers["Location"], headers={"Authorization": f"bearer {key}"}).json()
    assert (answer["status"], answer["state"], answer["code"]) == ("FAILED", "failed", "duplicate_of")
    assert answer["message"] == ENGINE_CODES["duplicate_of"].patient


def test_it_says_what_it_waits_for_and_304_to_who_knows_that(client: Client, key: str) -> None:
    at = post(client, key).headers["Location"]
    row, mine = Workflow.objects.get(), {"Authorization": f"Bearer {key}"}
    later = Now() + timedelta(hours=1)
    etags = set()
    for kind, told in (("approval", "person"), ("signal", "signal"), ("time", "time"), ("children", "workflows")):
        Workflow.objects.update(waiting_for="it", invisible_until=later)
        wait = Wait.objects.create(workflow=row, name=kind, kind=kind, deadline=later)
        other = {"workflow": row, "kind": "signal" if kind == "approval" else "approval", "deadline": later}
        Wait.objects.create(name=f"{kind}, met since", outcome="answered", **other)
        Wait.objects.create(name=f"{kind}, superseded", superseded=True, **other)
        answer = client.get(at, headers=mine)
        assert (answer.json()["state"], answer.json()["waits_for"]) == ("waiting", told)
        etags.add(etag := answer.headers["ETag"])
        unchanged = client.get(at, headers=mine | {"If-None-Match": etag})
        assert (unchanged.status_code, unchanged.content, unchanged.headers["ETag"]) == (304, b"", etag)
        assert "Content-Length" not in unchanged.headers
        Wait.objects.filter(pk=wait.pk).update(outcome="answered")
    Workflow.objects.update(parked_on="payments", waiting_for="")
    answer = client.get(at, headers=mine | {"If-None-Match": etag})
    assert (answer.status_code, answer.json()["state"], answer.json()["waits_for"]) == (200, "parked", "service")
    assert "payments" not in answer.content.decode()
    assert len(etags) == 4  # each of the four kinds has told something else


def test_a_request_is_called_as_its_client_calls_it_in_its_row_and_its_answer(client: Client, key: str) -> None:
    sent = uuid4()
    for body, status in (("{}", 202), ("[", 400)):
        for name, answered in (("shop-7", "shop-7"), ("shop 7", sent.hex)):
            response = post(client, key, body, **{"Idempotency-Key": str(sent), "X-Request-ID": name})
            assert (response.status_code, response.headers["X-Request-ID"]) == (status, answered)
            assert request_ids.current.get() == ""
    assert Workflow.objects.get().request_id == "shop-7"
    post(client, key, **{"X-Request-ID": "shop-7"})  # another one's name, and no one's identity
    post(client, key)
    assert list(Workflow.objects.values_list("given_request_id", flat=True).order_by("pk")) == ["shop-7", "shop-7", ""]


@pytest.mark.parametrize("sent", [TRACEPARENT, f"ff{TRACEPARENT[2:]}", "x" * 8000, f"{TRACEPARENT},{TRACEPARENT}"])
def test_the_trace_that_a_client_is_in_is_kept_unless_it_is_not_valid(
    sent: str, client: Client, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert post(client, key, traceparent=sent, **{"X-Request-ID": "shop-7"}).status_code == 202
    row = Workflow.objects.get()
    assert (row.traceparent, row.request_id) == (sent if sent == TRACEPARENT else "", "shop-7")


def test_accepting_a_submission_writes_one_row_and_notifies_nobody(
    view: Client, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NOTIFY would make all commits wait for each other. The key's use is written once an hour."""
    post(view, key)
    statements: list[str] = []
    execute = psycopg.Cursor.execute

    def look(cursor: Any, sql: Any, *args: Any, **kwargs: Any) -> Any:
        statements.append(str(sql).strip())
        return execute(cursor, sql, *args, **kwargs)

    monkeypatch.setattr(psycopg.Cursor, "execute", look)
    assert post(view, key, '{"patient": {"email": "ada@example.com"}}').status_code == 202
    (written,) = [sql for sql in statements if not sql.startswith("SELECT")]  # the API's keys are read now and then
    assert "INSERT INTO workflows_workflow" in written
    assert SearchKeyHash.objects.exists(), "its search keys are in the same statement"
    assert "notify" not in "".join(statements).lower()


def test_a_submission_sent_twice_is_replayed_and_its_key_is_for_nothing_else(client: Client, key: str) -> None:
    sent = {"Idempotency-Key": str(uuid4())}
    first = post(client, key, '{"a": 1}', **sent).json()
    again = post(client, key, '{"a":1.0}', **sent)
    assert (again.status_code, again.json()) == (202, {**first, "replayed": True})
    assert_problem(post(client, key, '{"a": 2}', **sent), 422, "idempotency_key_reused")
    other = api_keys.create("another")
    assert_problem(post(client, other, '{"a": 1}', **sent), 409, "idempotency_key_taken")


def test_another_clients_submission_is_not_there(client: Client, key: str) -> None:
    location = post(client, key).headers["Location"]
    for other in (api_keys.create("another"),):
        response = client.get(location, headers={"Authorization": f"Bearer {other}"})
        assert_problem(response, 404, "not_found")
    for path in (f"{URL}/{uuid4()}", f"{URL}/1", f"{URL}/x", f"{location}/", f"{URL}/{uuid4().hex}"):
        assert_problem(client.get(path, headers={"Authorization": f"Bearer {key}"}), 404, "not_found")


def test_a_request_without_a_key_is_401(client: Client) -> None:
    for authorization in ("", "Bearer ", "Basic YTpi", "onramp_x"):
        response = post(client, "", Authorization=authorization)
        assert_problem(response, 401, "api_key_missing")
        assert response.headers["WWW-Authenticate"] == "Bearer"


def test_an_unknown_and_a_revoked_key_are_401(client: Client, key: str) -> None:
    assert post(client, key).status_code == 202
    api_keys.revoke(api_keys.find(key).get())
    for refused in (key, key + "x", "onramp_é"):
        response = post(client, refused)
        assert_problem(response, 401, "api_key_invalid")
        assert response.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
    assert Workflow.objects.count() == 1


BAD_KEYS = ["1", "x", "00000000-0000-0000-0000-00000000000g", f"{{{uuid4()}}}", f"urn:uuid:{uuid4()}", f'"{uuid4()}"']
OTHER_TYPES = ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"]


REFUSED: list[tuple[dict[str, str], int, str]] = [
    ({"Idempotency-Key": ""}, 400, "idempotency_key_missing"),
    *(({"Idempotency-Key": key}, 400, "idempotency_key_invalid") for key in [*BAD_KEYS, f"{uuid4()},{uuid4()}"]),
    *(({"content_type": other}, 415, "unsupported_media_type") for other in OTHER_TYPES),
    ({"Content-Encoding": "gzip"}, 415, "unsupported_content_encoding"),
    ({"Transfer-Encoding": "chunked"}, 411, "length_required"),  # whatever length it says
]


def test_other_headers_and_methods_are_refused(client: Client, key: str) -> None:
    for headers, status, code in REFUSED:
        assert_problem(post(client, key, **headers), status, code)
    for method in ("GET", "PUT", "OPTIONS", "FOO"):
        response = client.generic(method, URL)
        assert_problem(response, 405, "method_not_allowed")
        assert response.headers["Allow"] == "POST"
    assert client.generic("HEAD", URL).status_code == 405
    assert client.delete(f"{URL}/{uuid4()}").headers["Allow"] == "GET, HEAD"


def test_a_body_of_the_largest_size_is_taken_and_one_byte_more_is_not(client: Client, key: str) -> None:
    largest = '{"a":"' + "x" * (requests.MAX_BYTES - 8) + '"}'
    assert post(client, key, largest).status_code == 202
    assert_problem(post(client, key, largest + " "), 413, "too_large")
    assert Workflow.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ('{"canary"', 400, "malformed_json"),
        (b'{"canary":"\xff"}', 400, "not_utf8"),
        ('{"canary":"\\u0000"}', 422, "null_character"),
    ],
)
def test_a_body_that_cannot_be_kept_leaves_no_row_and_no_trace(
    client: Client, key: str, body: str | bytes, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    response = post(client, key, body)
    assert_problem(response, status, code)
    assert b"canary" not in response.content
    assert "canary" not in caplog.text
    assert key not in caplog.text
    assert not Workflow.objects.exists()


@pytest.mark.parametrize("debug", [True, False])
def test_an_unforeseen_error_is_a_problem_and_says_nothing_of_the_request(
    view: Client, key: str, debug: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        canary = "canary"
        raise RuntimeError(f"invalid input syntax: {canary} {kwargs['payload'].text}")

    monkeypatch.setattr(submissions, "enter", fail)
    with override_settings(DEBUG=debug):
        response = post(view, key, '{"a": "canary-2"}')
    assert_problem(response, 500, "internal_error")
    assert b"canary" not in response.content
    assert "RuntimeError" in caplog.text
    assert "in fail" in caplog.text
    assert "canary-2" not in caplog.text
    assert "invalid input syntax: canary" not in caplog.text


@override_settings(SUBMISSION_WORKFLOW="onboarding")
def test_it_enters_the_definition_that_the_settings_name(view: Client, key: str) -> None:
    post(view, key)
    assert Workflow.objects.get().workflow_type == "onboarding"

import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection
from django.test import Client
from pydantic import BaseModel, ConfigDict
from pytest_django import Settings

from tests.workflows.api.answers import assert_problem
from workflows.api import requests
from workflows.definition import WorkflowDefinition, definitions
from workflows.ingress import api_keys
from workflows.intake import submissions
from workflows.models import Workflow

pytestmark = pytest.mark.django_db

CANARY = "canary-7f3a"
URL = "/v1/workflows"


class Item(BaseModel):
    sku: str
    count: int


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    customer: UUID
    items: list[Item] = []
    notes: dict[str, int] = {}


def step(**_: Any) -> None: ...


ORDER = WorkflowDefinition(
    name="order",
    steps=[step],
    context_class=BaseModel,
    queue="pool",
    linking_id="customer",
    expires_after=timedelta(hours=1),
    input_class=Order,
)
ANYTHING = WorkflowDefinition(name="anything", steps=[step], context_class=BaseModel)


@pytest.fixture(autouse=True)
def _definitions(settings: Settings) -> Iterator[None]:
    settings.WORKFLOWS = [f"{__name__}.ORDER", f"{__name__}.ANYTHING"]
    definitions.cache_clear()
    yield
    definitions.cache_clear()


def start(client: Client, key: str, body: bytes | dict[str, Any], **headers: str) -> Any:
    sent = {"Authorization": f"Bearer {key}", **{n.replace("_", "-"): v for n, v in headers.items()}}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    content_type = sent.pop("Content-Type", "application/json")
    return client.post(URL, content, content_type=content_type, headers={n: v for n, v in sent.items() if v})


def body(**fields: Any) -> dict[str, Any]:
    return {"workflow_type": "anything", "tenant": "north", "business_key": "order-1", "input": {"a": 1}, **fields}


def test_a_workflow_is_stored_and_found_by_whoever_started_it(client: Client, key: str) -> None:
    customer = str(uuid4())
    response = start(client, key, body(workflow_type="order", input={"customer": customer}))
    assert response.status_code == 202
    row = Workflow.objects.get()
    assert response.json() == {
        "id": row.pk,
        "key": str(row.idempotency_key),
        "status": "PENDING",
        "state": "queued",
        "replayed": False,
    }
    assert (row.workflow_type, row.tenant, row.business_key) == ("order", "north", "order-1")
    assert (row.submitted_by, row.queue, row.linking_id) == ("shop", "pool", customer)
    assert row.payload == {"customer": customer}
    assert response.headers["X-Request-ID"] == row.request_id
    assert row.expires_at == row.created_at + timedelta(hours=1)
    assert row.idempotency_key.version == 7  # it begins with the time: see `new_key`
    location = response.headers["Location"]
    assert location == f"{URL}/{row.idempotency_key}"
    found = client.get(location, headers={"Authorization": f"Bearer {key}"})
    assert found.status_code == 200
    assert found.json().keys() == {"id", "status", "state", "created_at", "completed_at", "message"}
    assert found.json()["id"] == row.pk
    for other in (location[:-1], f"{URL}/{uuid4()}", f"{URL}/1", f"{location}/"):
        assert_problem(client.get(other, headers={"Authorization": f"Bearer {key}"}), 404, "not_found")
    another = api_keys.create("another")
    assert_problem(client.get(location, headers={"Authorization": f"Bearer {another}"}), 404, "not_found")
    assert_problem(client.get(location), 401, "api_key_missing")


def test_the_trace_that_a_client_is_in_is_kept(client: Client, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert start(client, key, body(), traceparent=traceparent).status_code == 202
    assert Workflow.objects.get().traceparent == traceparent


def test_the_tenant_is_that_of_the_clients_key(client: Client) -> None:
    old, key = api_keys.create("shop"), api_keys.create("shop", tenant="south")
    without = {name: value for name, value in body().items() if name != "tenant"}
    assert start(client, key, without).status_code == 202
    assert start(client, old, body(tenant="south", business_key="order-2")).status_code == 202
    assert set(Workflow.objects.values_list("tenant", flat=True)) == {"south"}
    assert_problem(start(client, key, body(business_key="order-3")), 422, "tenant_invalid")
    with pytest.raises(ValueError, match="tenant"):
        api_keys.create("shop", tenant="a\nb")


def test_the_same_input_again_is_replayed_and_any_other_is_409(client: Client, key: str) -> None:
    first = start(client, key, body()).json()
    for again in (body(), b'{"input":{"a":1.0},"business_key":"order-1","tenant":"north","workflow_type":"anything"}'):
        response = start(client, key, again)
        assert (response.status_code, response.json()) == (202, {**first, "replayed": True})
        assert response.headers["Location"] == f"{URL}/{first['key']}"
    response = start(client, key, body(), Idempotency_Key=str(uuid4()))  # the row has its key already
    assert response.json() == {**first, "replayed": True}
    assert_problem(start(client, key, body(input={"a": 2})), 409, "business_key_taken")
    assert_problem(start(client, api_keys.create("another"), body()), 409, "business_key_taken")
    assert Workflow.objects.get().payload == {"a": 1}


def test_a_business_key_is_unique_in_its_tenant_and_type_only(client: Client, key: str) -> None:
    without_tenant = {name: value for name, value in body().items() if name != "tenant"}
    customer = {"customer": str(uuid4())}
    for other in (
        body(),
        body(tenant="south"),
        body(business_key="order-2"),
        body(workflow_type="order", input=customer),
        without_tenant,
    ):
        assert start(client, key, other).json()["replayed"] is False
    for same in (body(tenant=""), body(tenant=None)):
        assert start(client, key, same).json()["replayed"] is True
    assert Workflow.objects.count() == 5


def test_an_idempotency_key_becomes_the_workflows_own(client: Client, key: str) -> None:
    sent = str(uuid4())
    first = start(client, key, body(), Idempotency_Key=sent.upper()).json()
    assert first["key"] == sent
    assert start(client, key, body(), Idempotency_Key=sent).json() == {**first, "replayed": True}
    assert start(client, key, body()).json() == {**first, "replayed": True}
    assert_problem(start(client, key, body(), Idempotency_Key="1"), 400, "idempotency_key_invalid")


@pytest.mark.django_db(transaction=True)
def test_an_idempotency_key_used_for_another_workflow_is_refused_as_a_submissions_is(client: Client) -> None:
    key, another, sent = api_keys.create("shop"), api_keys.create("another"), str(uuid4())
    start(client, key, body(), Idempotency_Key=sent)
    start(client, key, body(business_key="order-2"))
    for name in ("order-2", "order-3"):
        answer = start(client, key, body(business_key=name), Idempotency_Key=sent)
        assert_problem(answer, 422, "idempotency_key_reused")
    answer = start(client, another, body(business_key="order-3"), Idempotency_Key=sent)
    assert_problem(answer, 409, "idempotency_key_taken")
    assert_problem(start(client, key, body(input={}), Idempotency_Key=sent), 409, "business_key_taken")
    assert Workflow.objects.count() == 2
    assert start(client, key, body(), Idempotency_Key=sent).json()["replayed"] is True


def test_the_input_is_kept_as_it_was_sent(client: Client, key: str) -> None:
    sent = b'{"workflow_type":"anything","business_key":"1","input":{"amount":12345678901234567890.1234567890000}}'
    assert start(client, key, sent).status_code == 202
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload->>'amount', payload - 'amount' FROM workflows_workflow")
        assert cursor.fetchone() == ("12345678901234567890.1234567890000", "{}")
    assert start(client, key, sent).json()["replayed"] is True


INVALID: list[tuple[dict[str, Any], str]] = [
    ({}, "customer (missing)"),
    ({"customer": CANARY}, "customer (uuid_parsing)"),
    ({"customer": str(uuid4()), "items": [{"sku": CANARY}]}, "items.0.count (missing)"),
    ({"customer": str(uuid4()), "items": [{"sku": 1, "count": CANARY}]}, "items.0.sku (string_type), items.0.count"),
    ({"customer": str(uuid4()), CANARY: 1}, "••• (extra_forbidden)"),
    ({"customer": str(uuid4()), "notes": {CANARY: "x"}}, "notes.••• (int_type)"),
    ({"customer": str(uuid4()), "items": [{}] * 1000}, "and 1980 more"),
]


def test_an_invalid_input_is_refused_by_the_names_of_its_fields(
    client: Client, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for sent, expected in INVALID:
        response = start(client, key, body(workflow_type="order", input=sent))
        assert_problem(response, 422, "input_invalid")
        assert expected in response.json()["detail"]
        assert CANARY not in response.json()["detail"]
    assert CANARY not in caplog.text
    assert not Workflow.objects.exists()


REFUSED: list[tuple[bytes | dict[str, Any], int, str]] = [
    (b'{"input":{"a":"canary-7f3a\\u0000"}}', 422, "null_character"),
    ({}, 422, "workflow_type_unknown"),
    (body(workflow_type=CANARY), 422, "workflow_type_unknown"),
    (body(workflow_type=1), 422, "workflow_type_unknown"),
    (body(workflow_type=["anything"]), 422, "workflow_type_unknown"),
    (body(tenant=1), 422, "tenant_invalid"),
    (body(tenant=CANARY * 10), 422, "tenant_invalid"),
    (body(business_key=None), 422, "business_key_invalid"),
    (body(business_key=""), 422, "business_key_invalid"),
    (body(business_key=1), 422, "business_key_invalid"),
    (body(business_key="x" * 201), 422, "business_key_invalid"),
    (body(input=None), 422, "input_invalid"),
    (body(input=CANARY), 422, "input_invalid"),
    (body(input=[CANARY]), 422, "input_invalid"),
    (body(tenent="north"), 422, "field_unknown"),
    (body(input={"a": "x" * 1024 * 1024}), 413, "too_large"),
]


def test_what_is_refused_leaves_no_row_and_no_trace(client: Client, key: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for sent, status, code in REFUSED:
        response = start(client, key, sent)
        assert_problem(response, status, code)
        assert CANARY.encode() not in response.content
    assert CANARY not in caplog.text
    assert not Workflow.objects.exists()


def test_the_longest_of_everything_is_taken_and_the_headers_are_asked_for(client: Client, key: str) -> None:
    assert_problem(start(client, key + "x", body()), 401, "api_key_invalid")
    assert_problem(start(client, key, body(), Content_Type="text/plain"), 415, "unsupported_media_type")
    for path, allowed in ((URL, "POST"), (f"{URL}/{uuid4()}", "GET, HEAD")):
        assert client.put(path).headers["Allow"] == allowed
    largest = json.dumps(body(tenant="é" * 100, business_key="é" * 200, input={"a": ""})).encode()
    largest = largest.replace(b'"a": ""', b'"a": "' + b"x" * (requests.MAX_BYTES - len(largest)) + b'"')
    assert start(client, key, largest).status_code == 202
    assert_problem(start(client, key, largest + b" "), 413, "too_large")


def test_another_constraint_is_not_taken_for_a_business_key(client: Client, key: str, monkeypatch: Any) -> None:
    """What is violated, and was not foreseen, is an error and no duplicate."""
    parameters = submissions._parameters

    def without_a_queue(*args: Any) -> dict[str, Any]:
        return {**parameters(*args), "queue": None}

    monkeypatch.setattr(submissions, "_parameters", without_a_queue)
    assert_problem(start(client, key, body()), 500, "internal_error")


@pytest.mark.django_db(transaction=True)
def test_an_input_is_never_in_the_text_of_a_statement(client: Client) -> None:
    key = api_keys.create("shop")
    connection.ensure_connection()
    assert connection.connection is not None
    backend = connection.connection.info.backend_pid
    start(client, key, body(business_key=CANARY, input={"a": CANARY}))
    start(client, key, body(business_key=CANARY, input={"a": CANARY}))  # ends with the comparison
    with psycopg.connect(**connection.get_connection_params()) as other:
        [(shown,)] = other.execute("SELECT query FROM pg_stat_activity WHERE pid = %s", [backend]).fetchall()
    assert "workflows_workflow" in shown
    assert CANARY not in shown

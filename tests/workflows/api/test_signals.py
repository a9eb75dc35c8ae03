"""What a webhook or an API client may tell, and what is refused to them, without a row and without a trace."""

import json
import logging
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.api.answers import assert_problem
from tests.workflows.api.signals import CANARY, DELIVERED, deliver, tell, waiting
from workflows.api import requests
from workflows.ingress import api_keys
from workflows.models import Signal, Workflow

pytestmark = pytest.mark.django_db


# --- Webhooks -----------------------------------------------------------------------------------------

A_KEY = "5d0f6c1e-8a53-4a6b-9c55-0e6f1b7d2a94"

BODIES: list[tuple[bytes | dict[str, Any], int, str]] = [
    (b'{"canary-7f3a"', 400, "malformed_json"),
    (b'{"name":"a","linking_id":"a","payload":{"a":"canary-7f3a\\u0000"}}', 422, "null_character"),
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


def test_what_is_refused_of_a_webhook_leaves_no_row_and_no_trace(
    client: Client, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for body, status, code in BODIES:
        response = deliver(client, secret, body)
        assert_problem(response, status, code)
        assert CANARY.encode() not in response.content
    assert CANARY not in caplog.text
    assert secret not in caplog.text
    assert not Signal.objects.exists()


def test_ids_and_names_of_the_longest_length_are_taken(client: Client, secret: str) -> None:
    body = {"name": "x" * 199, "linking_id": "é" * 200}
    assert deliver(client, secret, body, delivery_id="x" * 200).status_code == 202


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


# --- API clients --------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_an_api_client_tells_any_workflow_whose_key_it_knows(client: Client, key: str) -> None:
    workflow = waiting(submitted_by="another")
    response = tell(client, key, workflow.key, {"name": "parcel.delivered", "payload": {"at": "noon"}})
    assert (response.status_code, response.json()) == (202, {"replayed": False})
    signal = Signal.objects.get()
    assert (signal.source, signal.workflow_id, signal.payload) == ("api:shop", workflow.pk, {"at": "noon"})
    workflow.refresh_from_db()
    assert workflow.created_at < workflow.invisible_until <= timezone.now()


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
        (tell(client, key, workflow.key, {**body, "name": "decision:1"}), 422, "signal_name_invalid"),
        (tell(client, key, workflow.key, {**body, "payload": 1}), 422, "signal_payload_invalid"),
        (tell(client, key, workflow.key, b"{"), 400, "malformed_json"),
        (tell(client, key, workflow.key, b" " * 1024 * 1024), 413, "too_large"),
    ):
        assert_problem(response, status, code)
        assert CANARY.encode() not in response.content
    assert not Signal.objects.exists()

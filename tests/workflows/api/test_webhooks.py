"""A webhook becomes a signal, once for each delivery, and only if its source has signed it."""

import json
import time
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from tests.workflows.api.answers import assert_problem
from tests.workflows.api.signals import DELIVERED, deliver, waiting
from workflows.api import requests
from workflows.ingress import webhooks
from workflows.models import Signal

pytestmark = pytest.mark.django_db


@pytest.mark.django_db(transaction=True)
def test_a_webhook_becomes_a_signal_for_its_linking_id_and_wakes_who_waits(client: Client, secret: str) -> None:
    workflow = waiting(linking_id="acc-1")
    response = deliver(client, secret, DELIVERED)
    assert (response.status_code, response.json()) == (202, {"replayed": False})
    signal = Signal.objects.get()
    assert (signal.source, signal.dedupe_key, signal.name) == ("parcels", "msg_1", "parcel.delivered")
    assert (signal.linking_id, signal.workflow_id, signal.payload) == ("acc-1", None, {"at": "noon"})
    assert (signal.closed_at, signal.ignored) == (None, False)
    workflow.refresh_from_db()
    assert workflow.created_at < workflow.invisible_until <= timezone.now()


def test_a_delivery_repeated_is_told_once_and_its_id_is_for_nothing_else(client: Client, secret: str) -> None:
    assert deliver(client, secret, DELIVERED).json() == {"replayed": False}
    respelt = json.dumps({**DELIVERED, "payload": {"at": "noon"}}, indent=2).encode()
    for body in (DELIVERED, respelt):
        response = deliver(client, secret, body)
        assert (response.status_code, response.json()) == (202, {"replayed": True})
    changes: list[dict[str, Any]] = [{"name": "parcel.lost"}, {"linking_id": "acc-2"}, {"payload": {"at": 1}}]
    for change in changes:
        assert_problem(deliver(client, secret, {**DELIVERED, **change}), 422, "webhook_id_reused")
    assert Signal.objects.get().payload == {"at": "noon"}


def test_every_digit_of_a_number_is_kept(client: Client, secret: str) -> None:
    body = b'{"linking_id":"a","payload":{"amount":12345678901234567890.123456789000},"name":"paid"}'
    assert deliver(client, secret, body).status_code == 202
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload->>'amount' FROM workflows_signal")
        assert cursor.fetchone() == ("12345678901234567890.123456789000",)


# --- Who has signed -------------------------------------------------------------------------------------


def test_that_a_secret_does_not_open_is_no_fault_of_its_source(client: Client, secret: str, settings: Any) -> None:
    settings.DATA_KEYS = ["of-another-installation"]
    new = webhooks.create("parcels")
    assert deliver(client, new, DELIVERED).status_code == 202
    assert_problem(deliver(client, secret, DELIVERED, delivery_id="2"), 503, "key_missing")


def test_an_unknown_source_is_refused_like_a_wrong_signature(client: Client, secret: str) -> None:
    refused = [deliver(client, webhooks.create("others"), DELIVERED)]
    for source in ("unknown", "UPPER", "a%00b", "%C3%A9", "api:shop", "console", "x" * 300):
        refused.append(deliver(client, secret, DELIVERED, source=source))
    webhooks.revoke(webhooks.find(secret).get())
    refused.append(deliver(client, secret, DELIVERED))
    names = {response.headers.pop("X-Request-ID") for response in refused}
    assert len(names) == len(refused)
    for response in refused:
        assert_problem(response, 401, "webhook_signature_invalid")
        assert response.content == refused[0].content
        assert response.headers == refused[0].headers
    assert "WWW-Authenticate" in refused[0].headers
    assert not Signal.objects.exists()


def test_a_delivery_without_one_of_its_headers_is_401(client: Client, secret: str) -> None:
    for header in ("Webhook_Id", "Webhook_Timestamp", "Webhook_Signature"):
        assert_problem(deliver(client, secret, DELIVERED, **{header: ""}), 401, "webhook_signature_missing")
    assert not Signal.objects.exists()


def test_nothing_is_said_of_a_body_that_nobody_has_signed(
    client: Client, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests.jsonb, "parse", lambda body: pytest.fail("it was parsed"))
    for body, content_type in ((b"{", "application/json"), (b"\xff", "application/json"), (b"{}", "text/plain")):
        response = deliver(client, secret, body, content_type=content_type, Webhook_Signature="v1,AAAA")
        assert_problem(response, 401, "webhook_signature_invalid")


def test_an_id_that_cannot_be_kept_is_400(client: Client, secret: str) -> None:
    content = json.dumps(DELIVERED).encode()
    now = str(int(time.time()))
    for delivery_id in ("x" * 201, "a b", "é"):
        signature = webhooks.sign(webhooks.key_of(secret), f"{delivery_id}.{now}.".encode("latin-1") + content).decode()
        sent = {"Webhook_Id": delivery_id, "Webhook_Timestamp": now, "Webhook_Signature": signature}
        assert_problem(deliver(client, secret, content, **sent), 400, "webhook_id_invalid")
    assert not Signal.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_webhook_may_name_the_workflow_by_its_key(client: Client, secret: str) -> None:
    workflow = waiting()
    body = {"name": "parcel.delivered", "workflow": workflow.key.upper(), "linking_id": None, "payload": None}
    assert deliver(client, secret, body).status_code == 202
    signal = Signal.objects.get()
    assert (signal.linking_id, signal.workflow_id, signal.payload) == (None, workflow.pk, {})
    workflow.refresh_from_db()
    assert workflow.created_at < workflow.invisible_until <= timezone.now()

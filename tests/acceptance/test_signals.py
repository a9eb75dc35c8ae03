"""What others tell workflows, from outside: a gunicorn on the console's entry, real HTTP, a database that goes away."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection

from tests.servers import Gunicorn, Proxy, bash, database_url, gunicorn
from workflows.ingress import api_keys, webhooks
from workflows.models import Signal, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

CANARY = "canary-7f3a"


@pytest.fixture
def behind_proxy(tmp_path: Path) -> Iterator[tuple[Gunicorn, Proxy]]:
    with Proxy() as proxy, gunicorn("config.wsgi", tmp_path, url=database_url(port=proxy.port)) as server:
        yield server, proxy


def request(server: Gunicorn, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    sent = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=60)) as http:
        with suppress(BrokenPipeError, ConnectionResetError):  # of what is too long the rest is not taken
            http.request("POST", path, body, sent)
        answer = http.getresponse()
        return answer.status, json.loads(answer.read())


def deliver(
    server: Gunicorn,
    secret: str,
    content: dict[str, Any],
    *,
    source: str = "parcels",
    delivery_id: str = "",
    body: bytes | None = None,
) -> tuple[int, dict[str, Any]]:
    signed = json.dumps(content).encode()
    delivery_id, now = delivery_id or str(uuid4()), str(int(time.time()))
    signature = webhooks.sign(webhooks.key_of(secret), f"{delivery_id}.{now}.".encode() + signed).decode()
    return request(
        server,
        f"/v1/signals/{source}",
        signed if body is None else body,
        webhook_id=delivery_id,
        webhook_timestamp=now,
        webhook_signature=signature,
    )


def test_the_webhook_of_the_documentation_is_taken(tmp_path: Path) -> None:
    (script,) = re.findall(r"```sh\n(.*?)```", (settings.BASE_DIR / "docs/api.md").read_text(), flags=re.S)
    with gunicorn("config.wsgi", tmp_path) as server:
        script = script.replace("python manage.py", f"{sys.executable} manage.py").replace(":8000", f":{server.port}")
        printed = bash(script)
    assert "202 Accepted" in printed
    assert '{"replayed": false}' in printed
    signal = Signal.objects.get()
    assert (signal.source, signal.name, signal.linking_id) == ("parcels", "parcel.delivered", "acc-1")
    assert signal.payload == {"signed_by": "a neighbour"}


def test_what_is_told_is_stored_once_over_a_database_that_goes_away(behind_proxy: tuple[Gunicorn, Proxy]) -> None:
    server, proxy = behind_proxy
    secret, key = webhooks.create("parcels"), api_keys.create("shop")
    bearer = {"Authorization": f"Bearer {key}"}

    body = {"workflow_type": "onboarding", "business_key": "1", "input": {"a": CANARY}}
    status, started = request(server, "/v1/workflows", json.dumps(body).encode(), **bearer)
    assert (status, started["replayed"]) == (202, False)
    signals = f"/v1/workflows/{started['key']}/signals"
    told = {"name": "a.b", "workflow": started["key"], "payload": {"a": CANARY}}

    with ThreadPoolExecutor(8) as pool:  # each delivery four times at once
        ids = [str(uuid4()) for _ in range(25) for _ in range(4)]
        answers = list(pool.map(lambda delivery_id: deliver(server, secret, told, delivery_id=delivery_id), ids))
    assert {status for status, _ in answers} == {202}
    assert Signal.objects.count() == len(set(ids))
    assert sum(not answer["replayed"] for _, answer in answers) == len(set(ids))
    mine = {**bearer, "Idempotency_Key": str(uuid4())}
    assert request(server, signals, b'{"name": "a.b"}', **mine) == (202, {"replayed": False})

    assert deliver(server, secret, told, body=b"{}")[1]["code"] == "webhook_signature_invalid"
    assert deliver(server, secret, {**told, "name": "decision:1"})[1]["code"] == "signal_name_invalid"
    assert deliver(server, secret, {**told, "payload": {"a": CANARY * 26_000}})[0] == 413
    assert Signal.objects.count() == len(set(ids)) + 1

    proxy.drops_answers_about, proxy.answers_to_drop = b"INSERT INTO workflows_signal", 1
    lost = str(uuid4())
    assert deliver(server, secret, told, delivery_id=lost)[0] == 202
    assert proxy.answers_dropped == 1
    proxy.break_connections()  # every connection is dead, and no client notices
    for _ in range(20):
        assert deliver(server, secret, told, delivery_id=lost) == (202, {"replayed": True})

    proxy.fall_silent()
    began = time.monotonic()
    assert deliver(server, secret, told)[1]["code"] == "database_unavailable"
    assert time.monotonic() - began < 15
    proxy.cut()
    later = str(uuid4())
    for _ in range(3):
        assert deliver(server, secret, told, delivery_id=later)[1]["code"] == "database_unavailable"
    proxy.connect()
    assert deliver(server, secret, told, delivery_id=later) == (202, {"replayed": False})

    assert Workflow.objects.count() == 1
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE %s AND query NOT LIKE '%%activity%%'",
            [f"%{CANARY}%"],
        )
        assert cursor.fetchone() == (0,)
    for secret_thing in (CANARY, key, secret, started["key"]):
        assert secret_thing not in server.printed()

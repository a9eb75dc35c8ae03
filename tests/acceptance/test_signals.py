"""What others tell workflows, from outside: a gunicorn on the console's entry, real HTTP, a database that goes away."""

from __future__ import annotations

import json
import re
import sys
import time
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings

from tests.acceptance.test_intake import send_raw
from tests.acceptance.test_intake_connections import connect
from tests.processes import until
from tests.servers import Gunicorn, bash, gunicorn
from workflows.ingress import webhooks
from workflows.models import Signal

pytestmark = pytest.mark.django_db(transaction=True)


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


def test_a_webhook_that_is_too_long_gets_its_answer_although_its_source_sends_all_of_it_first(tmp_path: Path) -> None:
    """With something unread the kernel would reset the connection, and the source would lose the answer."""
    body = b"x" * 4_000_000
    head = f"POST /v1/signals/parcels HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    head += f"webhook-id: 1\r\nwebhook-timestamp: {int(time.time())}\r\nwebhook-signature: v1,eA==\r\n\r\n"
    with gunicorn("config.wsgi", tmp_path) as server:
        for _ in range(5):
            answer = send_raw(server, head.encode() + body, half_close=False)
            assert answer.startswith(b"HTTP/1.1 413 ")
            assert b'"too_large"' in answer
    assert not Signal.objects.exists()


def test_the_console_waits_for_no_client_that_does_not_close_and_takes_nothing_without_end(tmp_path: Path) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with gunicorn("config.wsgi", tmp_path, WEB_CONCURRENCY="1") as server, ExitStack() as stack:
        socks = [stack.enter_context(connect(server, request)) for _ in range(40)]
        assert [sock.recv(12) for sock in socks] == [b"HTTP/1.1 200"] * 40
        assert send_raw(server, request).startswith(b"HTTP/1.1 200 ")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            socks[-1].sendall(b"x" * 64 * 1024 * 1024)
        until(lambda: server.clients() == 0)

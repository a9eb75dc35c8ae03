"""What others tell workflows, from outside: a gunicorn on the console's entry, real HTTP, a database that goes away."""

from __future__ import annotations

import json
import re
import sys
import time
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings

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

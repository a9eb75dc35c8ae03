"""What a source outside sends to tell a workflow something, signed or with an API key, and who waits for it."""

import json
import time
from typing import Any
from uuid import uuid4

from django.test import Client

from tests.workflows import rows
from workflows.ingress import webhooks
from workflows.models import Workflow

CANARY = "canary-7f3a"
DELIVERED = {"name": "parcel.delivered", "linking_id": "acc-1", "payload": {"at": "noon"}}


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


def waiting(**fields: Any) -> Workflow:
    """A workflow that waits for a parcel."""
    return rows.waiting(task=False, wake_on=["parcel.delivered"], **fields)

"""Events of others as their vendors document them, and how each proves who sent them."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django.test import Client

from workflows.ingress import webhooks
from workflows.ingress.signal_sources import SignalSource, digest_of_body
from workflows.ingress.verifying import Hmac, StandardWebhooks, sign

Headers = dict[str, str]

GITHUB = SignalSource(
    "github",
    verify=Hmac(header="X-Hub-Signature-256", prefix="sha256="),
    id=digest_of_body,
    signal=lambda event: f"github.{event.headers['x-github-event']}",
    linking_id=lambda event: event.body["repository"]["full_name"],
)
STANDARD = SignalSource(
    "letters",
    verify=StandardWebhooks(),
    id=lambda event: event.headers["webhook-id"],
    signal=lambda event: event.body["type"],
    business_key=lambda event: event.body["data"]["order"],
    workflow_type="order",
    tenant="north",
    payload=lambda event: {"at": event.body["timestamp"]},
)
DECLARED = [
    "onboarding.sources.PAYMENTS",
    "onboarding.sources.IDENTITY",
    "tests.workflows.api.vendors.GITHUB",
    "tests.workflows.api.vendors.STANDARD",
]

# https://docs.stripe.com/api/events/object, with an intent in place of its setup_intent.
STRIPES: dict[str, Any] = {
    "id": "evt_1NG8Du2eZvKYlo2CUI79vXWy",
    "object": "event",
    "api_version": "2019-02-19",
    "created": 1686089970,
    "data": {"object": {"id": "pi_1", "object": "payment_intent", "status": "succeeded", "metadata": {}}},
    "livemode": False,
    "pending_webhooks": 0,
    "request": {"id": None, "idempotency_key": None},
    "type": "payment_intent.succeeded",
}
# https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md#314-examples
CLOUD: Headers = {
    "ce-specversion": "1.0",
    "ce-type": "com.example.account.created",
    "ce-time": "2018-04-05T03:56:24Z",
    "ce-id": "1234-1234-1234",
    "ce-source": "/mycontext/subcontext",
    "ce-subject": "L-1",
}
# https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#payload-structure
LETTER = {"type": "contact.created", "timestamp": "2022-11-03T20:26:10.344522Z", "data": {"order": "o-1"}}
PUSH = {"repository": {"full_name": "octocat/Hello-World"}}


def stripe_signature(secret: str, body: bytes, at: float | None = None) -> str:
    now = str(int(time.time() if at is None else at))
    return f"t={now},v1={hmac.new(secret.encode(), f'{now}.'.encode() + body, hashlib.sha256).hexdigest()}"


def _standard(secret: str, body: bytes) -> Headers:
    now, name = str(int(time.time())), f"msg_{uuid4().hex}"
    signature = sign(webhooks.STANDARD.key_of(secret), f"{name}.{now}.".encode() + body)
    return {"webhook-id": name, "webhook-timestamp": now, "webhook-signature": signature.decode()}


@dataclass(frozen=True)
class Vendor:
    """`proof`: the headers that show, with a secret, that a body is the vendor's. `headers`: its others."""

    name: str
    good: bytes
    proof: Callable[[str, bytes], Headers]
    headers: Headers

    def send(self, client: Client, secret: str, body: bytes | None = None, **changed: Any) -> Any:
        """One event. `proof` and `content_type` in place of the right ones; headers by `headers`."""
        content = self.good if body is None else body
        proof = changed.get("proof", self.proof)(secret, content)
        headers = {**self.headers, **proof, **changed.get("headers", {})}
        content_type = changed.get("content_type", "application/json")
        return client.post(f"/v1/signals/{self.name}", content, content_type=content_type, headers=headers)


VENDORS = [
    Vendor(
        "payments",
        json.dumps(STRIPES).encode(),
        lambda secret, body: {"Stripe-Signature": stripe_signature(secret, body)},
        {},
    ),
    Vendor("identity", b'{"account": "A-7"}', lambda secret, body: {"Authorization": f"Bearer {secret}"}, CLOUD),
    Vendor(
        "github",
        json.dumps(PUSH).encode(),
        lambda secret, body: {
            "X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        },
        {"X-GitHub-Event": "push", "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958"},
    ),
    Vendor("letters", json.dumps(LETTER).encode(), _standard, {}),
]

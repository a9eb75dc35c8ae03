"""`/v1/signals` and `/v1/workflows/<key>/signals`: facts that somebody else tells a workflow."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.db import DataError
from django.http import HttpRequest, HttpResponse, JsonResponse

from workflows import inbox
from workflows.api.problems import Problem, api
from workflows.api.requests import (
    body_of,
    client_of,
    ensure_json,
    idempotency_key_of,
    json_object_of,
)
from workflows.api.submissions import refusal
from workflows.ingress import signal_bodies, webhooks
from workflows.postgres import jsonb
from workflows.postgres.deadlines import ask


@api("POST")
def webhook(request: HttpRequest, source: str) -> HttpResponse:
    """Store what a source tells; 202, also when it has told it before.

    Nothing is said of the body before its signature was found good, nor of the source: one that we do not know is
    refused like a wrong signature.
    """
    delivery = _delivery_of(request)
    content = body_of(request)
    if not delivery.is_signed(webhooks.keys_of(source), content):
        raise _refused("webhook_signature_invalid", "No valid secret of this source has signed this.")
    if not delivery.has_proper_id:
        raise Problem(400, "webhook_id_invalid", "The webhook-id is 1 to 200 visible ASCII characters.")
    ensure_json(request)
    fact = signal_bodies.read(jsonb.parse(content))
    workflow_id = _workflow_called(fact.workflow) if fact.workflow else None
    return _answer(
        lambda: inbox.send(
            source=source,
            dedupe_key=delivery.id,
            name=fact.name,
            workflow_id=workflow_id,
            linking_id=fact.linking_id,
            payload=fact.payload,
        ),
        reused=Problem(422, "webhook_id_reused", "This webhook-id was used before, to tell something else."),
    )


@api("POST")
def tell_workflow(request: HttpRequest, key: str) -> HttpResponse:
    """Store what an API client tells a workflow; 202, also when it has told it before.

    Any client may tell any workflow: only its sender and those it has told know the key, a UUID.
    """
    client = client_of(request)
    dedupe_key = str(idempotency_key_of(request))
    body = json_object_of(request)
    signal_bodies.refuse_others(body, "name", "payload")
    name, payload = signal_bodies.name_of(body), signal_bodies.payload_of(body)
    workflow_id = _workflow_called(signal_bodies.uuid_of(key))
    return _answer(
        lambda: inbox.send(
            source=f"api:{client}", dedupe_key=dedupe_key, name=name, workflow_id=workflow_id, payload=payload
        ),
        reused=Problem(
            422, "idempotency_key_reused", "You have used this Idempotency-Key before, to tell something else."
        ),
    )


def _delivery_of(request: HttpRequest) -> webhooks.Delivery:
    names = ("Webhook-Id", "Webhook-Timestamp", "Webhook-Signature")
    delivery = webhooks.Delivery(*(request.headers.get(name, "") for name in names))
    if not (delivery.id and delivery.timestamp and delivery.signatures):
        raise _refused("webhook_signature_missing", "Send webhook-id, webhook-timestamp and webhook-signature.")
    if not delivery.is_current:
        raise _refused(
            "webhook_timestamp_stale",
            f"The webhook-timestamp is in seconds since 1970, whole, within {webhooks.TOLERANCE_SECONDS} of our clock.",
        )
    return delivery


def _refused(code: str, detail: str) -> Problem:
    return Problem(401, code, detail, WWW_Authenticate="StandardWebhooks")  # RFC 9110 wants a scheme to be named


def _workflow_called(key: UUID | None) -> int:
    return ask(lambda: signal_bodies.workflow_called(key))


def _answer(send: Callable[[], bool], *, reused: Problem) -> HttpResponse:
    """Store and wake. Repeatable: whatever breaks after the commit, the same signal sent again is told before."""
    try:
        told = ask(send)
    except inbox.DedupeKeyReused:
        raise reused from None
    except DataError as error:
        raise refusal(error) from None
    return JsonResponse({"replayed": not told}, status=202)

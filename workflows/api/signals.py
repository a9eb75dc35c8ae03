"""`/v1/signals` and `/v1/workflows/<key>/signals`: signals from outside to a workflow."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.http import HttpRequest, HttpResponse, JsonResponse

from workflows.api.problems import Problem, api
from workflows.api.requests import body_of, client_of, ensure_json, idempotency_key_of, json_object_of
from workflows.ingress import signal_bodies, webhooks
from workflows.postgres import jsonb
from workflows.postgres.deadlines import query_in_time
from workflows.signals import store


@api("POST")
def webhook(request: HttpRequest, source: str) -> HttpResponse:
    """Store the signal that a source sends; 202, also when it was sent before.

    Before its signature was found valid, no answer says anything about the body or the source: an unknown source is
    refused like a wrong signature.
    """
    delivery = _delivery_of(request)
    content = body_of(request)
    if not delivery.is_signed(webhooks.keys_of(source), content):
        raise _unauthorized("webhook_signature_invalid", "No valid secret of this source has signed this.")
    if not delivery.has_valid_id:
        raise Problem(400, "webhook_id_invalid", "The webhook-id is 1 to 200 visible ASCII characters.")
    ensure_json(request.headers)
    body = signal_bodies.read(jsonb.parse(content))
    workflow_id = _workflow_id_of(body.workflow) if body.workflow else None
    return _store(
        lambda: store.send(
            source=source,
            dedupe_key=delivery.id,
            name=body.name,
            workflow_id=workflow_id,
            linking_id=body.linking_id,
            payload=body.payload,
        ),
        reused=Problem(422, "webhook_id_reused", "This webhook-id was used before, for another signal."),
    )


@api("POST")
def send_signal(request: HttpRequest, key: str) -> HttpResponse:
    """Store the signal that an API client sends to a workflow; 202, also when it was sent before.

    Any client may send to any workflow: only the workflow's sender, and those it has told, know the key, a UUID.
    """
    client = client_of(request.headers)
    dedupe_key = str(idempotency_key_of(request.headers))
    body = json_object_of(request)
    signal_bodies.refuse_other_fields(body, "name", "payload")
    name, payload = signal_bodies.name_of(body), signal_bodies.payload_of(body)
    workflow_id = _workflow_id_of(signal_bodies.uuid_of(key))
    return _store(
        lambda: store.send(
            source=f"api:{client}", dedupe_key=dedupe_key, name=name, workflow_id=workflow_id, payload=payload
        ),
        reused=Problem(422, "idempotency_key_reused", "You have used this Idempotency-Key before, for another signal."),
    )


def _delivery_of(request: HttpRequest) -> webhooks.Delivery:
    names = ("Webhook-Id", "Webhook-Timestamp", "Webhook-Signature")
    delivery = webhooks.Delivery(*(request.headers.get(name, "") for name in names))
    if not (delivery.id and delivery.timestamp and delivery.signatures):
        raise _unauthorized("webhook_signature_missing", "Send webhook-id, webhook-timestamp and webhook-signature.")
    if not delivery.is_current:
        raise _unauthorized(
            "webhook_timestamp_stale",
            f"The webhook-timestamp is in seconds since 1970, whole, within {webhooks.TOLERANCE_SECONDS} of our clock.",
        )
    return delivery


def _unauthorized(code: str, detail: str) -> Problem:
    return Problem(401, code, detail, WWW_Authenticate="StandardWebhooks")  # RFC 9110 wants a scheme to be named


def _workflow_id_of(key: UUID | None) -> int:
    return query_in_time(lambda: signal_bodies.workflow_id_of(key))


def _store(send: Callable[[], bool], *, reused: Problem) -> HttpResponse:
    """Store the signal and wake its workflow. It can be repeated: the same signal sent again is a replay."""
    try:
        stored = query_in_time(send)
    except store.DedupeKeyReused:
        raise reused from None
    return JsonResponse({"replayed": not stored}, status=202)

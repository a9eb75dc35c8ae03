"""`/v1/signals` and `/v1/workflows/<key>/signals`: signals from outside to a workflow."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.http import HttpRequest, HttpResponse, JsonResponse

from workflows.api.problems import Problem, api
from workflows.api.requests import body_of, ensure_json, idempotency_key_of, json_object_of, key_of
from workflows.ingress import messages, signal_bodies, signal_sources, webhooks
from workflows.ingress.bounds import SIGNAL
from workflows.ingress.signal_bodies import NoSuchWorkflow
from workflows.ingress.signal_sources import SignalSource
from workflows.ingress.verifying import Unverified, Verifier
from workflows.models import Workflow
from workflows.postgres import jsonb
from workflows.postgres.deadlines import query_in_time
from workflows.postgres.jsonb import InputRefused
from workflows.signals import store


@api("POST")
def webhook(request: HttpRequest, source: str) -> HttpResponse:
    """Store the signal that a source sends; 202, also if it was sent before.

    Until its signature is found valid, no answer reveals anything about the body, nor whether an undeclared source
    exists: an unknown source is refused like a wrong signature.
    """
    verifier = webhooks.verifier_of(source)
    try:
        signed = verifier.read(request.headers)
    except Unverified as error:
        raise _unauthorized(error.code, str(error), verifier) from None
    content = body_of(request)
    if not webhooks.is_signed(source, signed, content):
        text = "No valid secret of this source has signed this."
        raise _unauthorized("webhook_signature_invalid", text, verifier)
    if declared := signal_sources.of_name(source):
        return _take_event(declared, request, content)
    delivery_id = request.headers["Webhook-Id"]
    if not webhooks.is_id(delivery_id):
        raise Problem(400, "webhook_id_invalid", "The webhook-id is 1 to 200 visible ASCII characters.")
    ensure_json(request.headers)
    body = signal_bodies.read(jsonb.parse(content))
    workflow_id = _workflow_id_of(body.workflow) if body.workflow else None
    return _store(
        lambda: store.send(
            source=source,
            dedupe_key=delivery_id,
            name=body.name,
            workflow_id=workflow_id,
            linking_id=body.linking_id,
            payload=body.payload,
        ),
        reused=Problem(422, "webhook_id_reused", "This webhook-id was used before, for another signal."),
    )


def _take_event(source: SignalSource, request: HttpRequest, content: bytes) -> HttpResponse:
    """Store the signal of a declared source's event; 200 if the event is of no use.

    A genuine event that cannot become a signal is kept for a person, because the source may never send it again.
    """
    event = messages.Arrived.by_webhook(source, request.headers, content)
    try:
        stored = query_in_time(lambda: messages.deliver(event))
    except InputRefused as refused:
        refusal = refused
        query_in_time(lambda: messages.keep_undelivered(event, refusal))
        raise
    if stored is None:
        return JsonResponse({"ignored": True})
    return JsonResponse({"replayed": not stored}, status=202)


@api("POST")
def send_signal(request: HttpRequest, key: str) -> HttpResponse:
    """Store the signal that an API client sends to a workflow; 202, also if it was sent before.

    Any client may send to any workflow within its API key's bounds, because only its sender, and clients that the
    sender gave it to, know the key, a UUID.
    """
    api_key = key_of(request.headers, SIGNAL)
    dedupe_key = str(idempotency_key_of(request.headers))
    body = json_object_of(request)
    signal_bodies.refuse_other_fields(body, "name", "payload")
    name, payload = signal_bodies.name_of(body), signal_bodies.payload_of(body)
    workflow_id = _workflow_id_of(signal_bodies.uuid_of(key))
    if (within := api_key.within) and not query_in_time(Workflow.objects.filter(within, pk=workflow_id).exists):
        raise NoSuchWorkflow
    return _store(
        lambda: store.send(
            source=f"api:{api_key.client}", dedupe_key=dedupe_key, name=name, workflow_id=workflow_id, payload=payload
        ),
        reused=Problem(422, "idempotency_key_reused", "You have used this Idempotency-Key before, for another signal."),
    )


def _unauthorized(code: str, detail: str, verifier: Verifier) -> Problem:
    return Problem(401, code, detail, WWW_Authenticate=verifier.scheme)  # RFC 9110 requires a scheme


def _workflow_id_of(key: UUID | None) -> int:
    return query_in_time(lambda: signal_bodies.workflow_id_of(key))


def _store(send: Callable[[], bool], *, reused: Problem) -> HttpResponse:
    """Store the signal and wake its workflow. Can be repeated: the same signal sent again is a replay."""
    try:
        stored = query_in_time(send)
    except store.DedupeKeyReused:
        raise reused from None
    except store.UnknownWorkflow:  # retention has deleted it since its key was looked up
        raise NoSuchWorkflow from None
    return JsonResponse({"replayed": not stored}, status=202)

"""`/v1/submissions`: save now, process later."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.cache import get_conditional_response, set_response_etag

from workflows import request_ids, trace_context
from workflows.api.problems import Problem, api
from workflows.api.requests import ensure_may_start, idempotency_key_of, json_object_of, key_of
from workflows.ingress.bounds import READ, SUBMIT, Key
from workflows.ingress.signal_bodies import uuid_of
from workflows.intake.submissions import Entry, enter, submission_definition
from workflows.models import SpentKey, Workflow
from workflows.postgres.deadlines import query_in_time
from workflows.telling.status_for_clients import TOLD, told_to_client


@api("POST")
def submit(request: HttpRequest) -> HttpResponse:
    """Store a submission; 202 with its status. If sent again, it gets the same answer with `replayed`."""
    api_key = key_of(request.headers, SUBMIT)
    ensure_may_start(api_key, definition := submission_definition())
    key = idempotency_key_of(request.headers)
    payload = json_object_of(request)
    entry = enter(
        definition,
        idempotency_key=key,
        payload=payload,
        submitted_by=api_key.client,
        request_id=request_ids.current.get(),
        traceparent=trace_context.to_store(request.headers),
        tenant=api_key.tenant,
    )
    return JsonResponse(receipt(entry), status=202, headers={"Location": f"{request.path}/{key}"})


@api("GET")
def submission(request: HttpRequest, key: str) -> HttpResponse:
    """The status of a submission, only for the client that sent it."""
    found = find_sent_by(key_of(request.headers, READ), key)
    if not found:
        raise Problem(404, "not_found", "You have sent no submission with this key.")
    return standing(request, found)


def receipt(entry: Entry) -> dict[str, Any]:
    """The answer to the sender of a submission."""
    return {"id": entry.id, "status": entry.status, "state": entry.state, "replayed": entry.replayed}


def find_sent_by(api_key: Key, key: str) -> dict[str, Any] | None:
    """The status of the workflow with this key, if the API key's client sent it, and it is within the key's bounds.

    Raises 410 if it was deleted long after its end: a client that got 404 might send it again.
    """
    idempotency_key = uuid_of(key)
    if idempotency_key is None:
        return None
    workflows = Workflow.objects.with_state().only(*TOLD)
    sent = workflows.filter(api_key.within, idempotency_key=idempotency_key, submitted_by=api_key.client)

    def look() -> dict[str, Any] | None:
        if row := sent.first():
            return told_to_client(row)
        rows = SpentKey.objects.only("status", "workflow_type", "tenant")
        spent = rows.filter(idempotency_key=idempotency_key, submitted_by=api_key.client).first()
        if spent and api_key.reaches(spent.workflow_type, spent.tenant):
            detail = f"It became {spent.status}, and was deleted long after. Do not send it again."
            raise Problem(410, "deleted", detail)
        return None

    return query_in_time(look)


def standing(request: HttpRequest, found: dict[str, Any]) -> HttpResponse:
    """The answer, with an ETag: 304 for a client that has this version."""
    response = JsonResponse(found)
    set_response_etag(response)
    return get_conditional_response(request, etag=response["ETag"], response=response) or response

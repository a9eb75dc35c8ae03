"""`/v1/submissions`: save now, process later."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse

from workflows import request_ids
from workflows.api.problems import Problem, api
from workflows.api.requests import client_of, idempotency_key_of, json_object_of
from workflows.ingress.signal_bodies import uuid_of
from workflows.intake.submissions import Entry, enter, submission_definition
from workflows.models import Workflow
from workflows.postgres.deadlines import query_in_time


@api("POST")
def submit(request: HttpRequest) -> HttpResponse:
    """Store a submission; 202 with its status. Sent again, it gets the same answer with `replayed`."""
    client = client_of(request.headers)
    key = idempotency_key_of(request.headers)
    payload = json_object_of(request)
    entry = enter(
        submission_definition(),
        idempotency_key=key,
        payload=payload,
        submitted_by=client,
        request_id=request_ids.current.get(),
    )
    return JsonResponse(receipt(entry), status=202, headers={"Location": f"{request.path}/{key}"})


@api("GET")
def submission(request: HttpRequest, key: str) -> HttpResponse:
    """The status of a submission, for the client that sent it; for any other client there is none."""
    found = find_sent_by(client_of(request.headers), key)
    if not found:
        raise Problem(404, "not_found", "You have sent no submission with this key.")
    return JsonResponse(found)


def receipt(entry: Entry) -> dict[str, Any]:
    """What the sender of a submission is told of it."""
    return {"id": entry.id, "status": entry.status, "state": entry.state, "replayed": entry.replayed}


def find_sent_by(client: str, key: str) -> dict[str, Any] | None:
    """The status of the workflow with this key, if this client sent it."""
    idempotency_key = uuid_of(key)
    if idempotency_key is None:
        return None
    found: dict[str, Any] | None = query_in_time(
        lambda: (
            Workflow.objects.with_state()
            .filter(idempotency_key=idempotency_key, submitted_by=client)
            .values("id", "status", "state", "created_at", "completed_at", "last_error_code")  # type: ignore[misc]  # state is annotated
            .first()
        )
    )
    code = found.pop("last_error_code") if found else ""
    return {**found, "code": code} if found and found["status"] == Workflow.Status.FAILED else found

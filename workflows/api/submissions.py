"""`/v1/submissions`: save now, process later."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.cache import get_conditional_response, set_response_etag

from workflows import request_ids
from workflows.api.problems import Problem, api
from workflows.api.requests import client_of, idempotency_key_of, json_object_of
from workflows.ingress.signal_bodies import uuid_of
from workflows.intake.submissions import Entry, enter, submission_definition
from workflows.models import State, Wait, Workflow
from workflows.postgres.deadlines import query_in_time
from workflows.telling.patient import message_of

_WAITS: dict[str, str] = {
    Wait.Kind.APPROVAL: "person",
    Wait.Kind.SIGNAL: "signal",
    Wait.Kind.TIME: "time",
    Wait.Kind.CHILDREN: "workflows",
}
_NOT_READ = ("payload", "context", "last_error_message")


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
    return standing(request, found)


def receipt(entry: Entry) -> dict[str, Any]:
    """What the sender of a submission is told of it."""
    return {"id": entry.id, "status": entry.status, "state": entry.state, "replayed": entry.replayed}


def find_sent_by(client: str, key: str) -> dict[str, Any] | None:
    """Where the workflow with this key stands, if this client sent it."""
    idempotency_key = uuid_of(key)
    if idempotency_key is None:
        return None
    rows = Workflow.objects.with_state().defer(*_NOT_READ)
    sent = rows.filter(idempotency_key=idempotency_key, submitted_by=client)
    return query_in_time(lambda: _told(sent.first()))


def standing(request: HttpRequest, found: dict[str, Any]) -> HttpResponse:
    """The answer, with an ETag: 304 to a client that has this one."""
    response = JsonResponse(found)
    set_response_etag(response)
    return get_conditional_response(request, etag=response["ETag"], response=response) or response


def _told(row: Workflow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    code = {"code": row.last_error_code} if row.status == Workflow.Status.FAILED else {}
    waits_for = {"waits_for": _waits_for(row)} if row.state in (State.WAITING, State.PARKED) else {}
    return {
        "id": row.pk,
        "status": row.status,
        "state": row.state,
        "created_at": row.created_at,
        "completed_at": row.completed_at,
        **code,
        **waits_for,
        "message": message_of(row),
    }


def _waits_for(row: Workflow) -> str:
    """In one word; a service is not named: which ones we have concerns nobody."""
    if row.state == State.PARKED:
        return "service"
    open_waits = Wait.objects.filter(workflow=row, outcome="", superseded=False).order_by("-id")
    return _WAITS.get(open_waits.values_list("kind", flat=True).first() or "", "other")

"""`/v1/workflows/<key>/history` and `.../cancel`: for API keys with the right, on workflows of their tenant."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, JsonResponse

from workflows import operations
from workflows.api.problems import Problem, api
from workflows.api.requests import json_object_of, key_of
from workflows.definition import definitions
from workflows.errors import NotAllowed
from workflows.ingress.bounds import CANCEL, READ_HISTORY, Key
from workflows.ingress.signal_bodies import refuse_other_fields, text_of, uuid_of
from workflows.models import Event, Workflow
from workflows.operations.guards import API, ApiClient
from workflows.operations.payments import may_have_been_charged
from workflows.postgres import synchronous
from workflows.postgres.deadlines import query_in_time
from workflows.redaction import private_part, scrub
from workflows.signals import store

EVENTS, MOST_EVENTS = 100, 500
LONGEST_REASON = 500


@api("GET")
def history(request: HttpRequest, key: str) -> HttpResponse:
    """A workflow's history, oldest first, in pages: kinds, steps and codes, and no free text."""
    api_key = key_of(request.headers, READ_HISTORY)
    after, limit = _number(request, "after", 0), _number(request, "limit", EVENTS)
    if not 1 <= limit <= MOST_EVENTS:
        raise Problem(422, "page_invalid", f"The limit is 1 to {MOST_EVENTS}.")
    row = _find(api_key, key)
    later = Event.objects.filter(workflow=row.pk, id__gt=after).order_by("id")
    events = query_in_time(lambda: list(later[: limit + 1]))
    shown = events[:limit]
    following = f"{request.path}?after={shown[-1].pk}&limit={limit}" if len(events) > limit else None
    return JsonResponse({"events": [_shown(each, api_key.client) for each in shown], "next": following})


@api("POST")
def cancel(request: HttpRequest, key: str) -> HttpResponse:
    """Cancel a workflow that is under way and has charged nothing; 202, also if it was already cancelled."""
    api_key = key_of(request.headers, CANCEL)
    body = json_object_of(request)
    refuse_other_fields(body, "reason")
    reason = (text_of(body, "reason", LONGEST_REASON) or "").strip()
    if not reason:
        raise Problem(422, "reason_invalid", f"Send a reason, a text of 1 to {LONGEST_REASON} characters.")
    row = _find(api_key, key)
    replayed = False
    try:
        query_in_time(lambda: _cancel(row, api_key.client, reason))
    except NotAllowed:
        if not query_in_time(lambda: _is_cancelled(row)):
            raise query_in_time(lambda: _why_not(row)) from None
        replayed = True
    now = _find(api_key, key)
    return JsonResponse(
        {"id": now.pk, "status": now.status, "state": now.state, "replayed": replayed},
        status=202,
        headers={"Location": f"/v1/workflows/{key}"},
    )


def _find(api_key: Key, key: str) -> Workflow:
    """The workflow with this key, if it is the API key's tenant's; without a tenant, if the client sent it."""
    its = Q(tenant=api_key.tenant) if api_key.tenant else Q(submitted_by=api_key.client)
    found: Workflow | None = None
    if idempotency_key := uuid_of(key):
        rows = Workflow.objects.with_state().filter(api_key.within, its, idempotency_key=idempotency_key)
        found = query_in_time(rows.first)
    if found is None:
        raise Problem(404, "not_found", "There is no such workflow of yours.")
    return found


def _number(request: HttpRequest, name: str, default: int) -> int:
    text = request.GET.get(name, str(default))
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise Problem(422, "page_invalid", f"{name} is a number: take the address of the next page as it was sent.")


def _shown(event: Event, client: str) -> dict[str, Any]:
    code = event.detail.get("error_code")
    return {
        "id": event.pk,
        "at": event.at,
        "kind": event.kind,
        "step": event.step or None,
        "attempt": event.attempt,
        "code": code if isinstance(code, str) and code else None,
        "by": _by(event.actor, client),
    }


def _by(actor: str, client: str) -> str | None:
    """The actor, without the name of any user or other client; None for the engine."""
    if not actor:
        return None
    if actor == ApiClient(client).get_username():
        return "you"
    return "client" if actor.startswith(API) else "staff"


def _cancel(row: Workflow, client: str, reason: str) -> None:
    definition = definitions().get(row.workflow_type)
    private = private_part(row.payload, definition.public_fields if definition else ())
    operations.cancel(row.pk, user=ApiClient(client), reason=scrub(reason, private))


def _is_cancelled(row: Workflow) -> bool:
    """Whether the workflow is cancelled, or will be, because its worker has been asked to: a promise to the client."""
    with transaction.atomic():
        synchronous.promise()
        now = Workflow.objects.values_list("status", "cancelled_at").get(pk=row.pk)
        pending = now[0] == Workflow.Status.PENDING
        return now[1] is not None or (pending and store.cancellation(row.pk) is not None)


def _why_not(row: Workflow) -> Problem:
    now = Workflow.objects.only("status", "compensating").get(pk=row.pk)
    if now.status != Workflow.Status.PENDING or now.compensating:
        return Problem(409, "not_under_way", "It has finished, or is being undone: it cannot be cancelled any more.")
    if may_have_been_charged(row.pk):
        text = (
            "It has been charged, or may have been: ask our support to cancel it, which gives it back if that can be."
        )
        return Problem(409, "charged", text)
    return Problem(409, "busy", "It cannot be cancelled just now. Send it again in a moment.", Retry_After="5")

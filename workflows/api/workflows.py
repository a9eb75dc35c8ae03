"""`/v1/workflows`: start a workflow of any definition, under a business key of the sender's choice."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse

from workflows import request_ids, trace_context
from workflows.api.problems import Problem, api
from workflows.api.requests import ensure_may_start, idempotency_key_of, json_object_of, key_of
from workflows.api.submissions import find_sent_by, receipt, standing
from workflows.definition import WorkflowDefinition, definitions
from workflows.ingress.bounds import READ, SUBMIT
from workflows.ingress.signal_bodies import refuse_other_fields, text_of
from workflows.intake.submissions import start
from workflows.postgres.jsonb import Document


@api("POST")
def start_workflow(request: HttpRequest) -> HttpResponse:
    """Store a workflow; 202 with its key and status. If sent again, it gets the same answer with `replayed`."""
    api_key = key_of(request.headers, SUBMIT)
    idempotency_key = idempotency_key_of(request.headers) if request.headers.get("idempotency-key") else None
    body = json_object_of(request)
    refuse_other_fields(body, "workflow_type", "tenant", "business_key", "input")
    definition = _definition_of(body)
    ensure_may_start(api_key, definition)
    entry = start(
        definition,
        tenant=_tenant_of(body, api_key.tenant),
        business_key=_business_key_of(body),
        payload=_input_of(body),
        submitted_by=api_key.client,
        idempotency_key=idempotency_key,
        request_id=request_ids.current.get(),
        traceparent=trace_context.to_store(request.headers),
    )
    return JsonResponse(
        {"key": entry.key, **receipt(entry)}, status=202, headers={"Location": f"{request.path}/{entry.key}"}
    )


@api("GET")
def workflow(request: HttpRequest, key: str) -> HttpResponse:
    """The status of a workflow, only for the client that started it."""
    found = find_sent_by(key_of(request.headers, READ), key)
    if not found:
        raise Problem(404, "not_found", "You have started no workflow with this key.")
    return standing(request, found)


def _definition_of(body: Document) -> WorkflowDefinition:
    name = body.value.get("workflow_type")
    definition = definitions().get(name) if isinstance(name, str) else None
    if definition is None or not definition.by_clients:
        raise Problem(422, "workflow_type_unknown", "The workflow_type is not one that this release knows.")
    return definition


def _tenant_of(body: Document, tenant: str) -> str:
    """The tenant of the API key, if it has one; otherwise the one that was sent."""
    sent = "" if body.value.get("tenant") == "" else text_of(body, "tenant", 100) or ""
    if tenant and sent not in ("", tenant):
        raise Problem(422, "tenant_invalid", "The tenant is not that of your API key: leave it out.")
    return tenant or sent


def _business_key_of(body: Document) -> str:
    business_key = text_of(body, "business_key", 200)
    if business_key is None:
        raise Problem(422, "business_key_invalid", "Send a business_key, by which you know this workflow.")
    return business_key


def _input_of(body: Document) -> Document:
    if not isinstance(body.value.get("input"), dict):
        raise Problem(422, "input_invalid", "Send the input, an object.")
    return body.part("input")

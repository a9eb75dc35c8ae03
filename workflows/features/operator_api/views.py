"""`/v1/operator/...`: what the console's pages show, for programs, and proposals.

Everything is read by the console's own pages, with the key's person as their user: the same filters, rules and masks.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, JsonResponse, QueryDict
from django.views.decorators.debug import sensitive_variables

from workflows import operations
from workflows.api.problems import Problem
from workflows.api.requests import idempotency_key_of, json_object_of
from workflows.console import find as find_page
from workflows.console import needs_a_person, needs_a_person_rows, time_filters, workflow_page
from workflows.console.manual_task import ManualTaskAdmin
from workflows.console.paging import AFTER, BEFORE, is_number
from workflows.console.workflow_filters import StepFilter
from workflows.console.workflow_list import WorkflowAdmin, WorkflowList
from workflows.definition import wording_of_type
from workflows.features.bulk import operations as bulk
from workflows.features.bulk.previews import preview
from workflows.features.operator_api import proposals, telling
from workflows.features.operator_api.door import OperatorRequest, operator
from workflows.health import counts as counting
from workflows.health import needs_a_person as needs
from workflows.health.for_whom import SEE_WORKFLOWS
from workflows.ingress.bounds import LOOK, PROPOSE
from workflows.ingress.signal_bodies import refuse_other_fields, text_of
from workflows.models import ManualTask, Proposal, Workflow
from workflows.operations import answers
from workflows.operations.guards import SEE_SERVICES
from workflows.operations.task_rules import read_task
from workflows.postgres.jsonb import Document
from workflows.search import find as finding
from workflows.telling.history import without_services

LONGEST_REASON = 500
# What a proposal is about: the field of its body that has the number.
TARGETS = {
    Proposal.Verb.RETRY: "workflow",
    Proposal.Verb.CANCEL: "workflow",
    Proposal.Verb.APPROVE: "task",
    Proposal.Verb.REJECT: "task",
    Proposal.Verb.BULK: "bulk",
}
PROPOSALS_SHOWN = 50


# --- Workflows ------------------------------------------------------------------------------------------


@operator(GET=LOOK)
def workflows(request: OperatorRequest) -> HttpResponse:
    """The list of workflows, by the console's filters, a page at a time."""
    page, found = _list(request)
    place = {AFTER: found.page.ids[-1]} if found.page.has_later else {}
    given = {name: value for name, value in request.GET.items() if name not in (AFTER, BEFORE)}
    return JsonResponse(
        {
            "workflows": [telling.listed(page, row) for row in found.result_list],
            **telling.number(found.result_count + found.has_more),
            "next": f"{request.path}?{urlencode({**given, **place})}" if place else None,
        }
    )


def _list(request: OperatorRequest) -> tuple[WorkflowAdmin, WorkflowList]:
    """The console's list for this request. Raises BadRequest for a filter, or a value, that it does not know."""
    page: WorkflowAdmin = admin.site.get_model_admin(Workflow)  # type: ignore[assignment]
    if not page.has_view_permission(request):
        raise PermissionDenied
    known = {getattr(each, "parameter_name", "") for each in page.list_filter}
    for name in request.GET:
        if name not in {*known, AFTER} or (name == AFTER and not is_number(request.GET[AFTER])):
            raise _invalid(name)
    try:
        found: WorkflowList = page.get_changelist_instance(request)  # type: ignore[assignment]
    except IncorrectLookupParameters as error:
        raise BadRequest from error
    for each in found.filter_specs:
        if getattr(each, "told", "") == time_filters.UNKNOWN or _is_unknown(each):
            raise _invalid(each.parameter_name)  # type: ignore[attr-defined]
    return page, found


def _is_unknown(each: Any) -> bool:
    """Whether the value is none of the filter's choices. Those of a filter that the page does not offer are its own.

    The list's page has each step, as those of earlier releases; a program that misspells one would find nothing.
    """
    known = {"", *each.offered()} if isinstance(each, StepFilter) else {str(value) for value, _ in each.lookup_choices}
    return bool(each.used_parameters) and bool(known) and str(each.value()) not in known


def _invalid(name: str) -> Problem:
    shown = f" {name}" if name.isidentifier() and len(name) <= 40 else ""  # else it may be a patient's
    return Problem(422, "filter_invalid", f"There is no such filter{shown}, or it has no such value.")


@operator(GET=LOOK)
def workflow(request: OperatorRequest, number: int) -> HttpResponse:
    return JsonResponse(telling.workflow(_row(request, number), request.user))


@operator(GET=LOOK)
def history(request: OperatorRequest, number: int) -> HttpResponse:
    """The history, newest first, a page at a time."""
    row = _row(request, number)
    events, older = workflow_page.events_of(row, request.GET.get(BEFORE, ""))
    if not request.user.has_perm(SEE_SERVICES):
        events = without_services(events)
    return JsonResponse(
        {
            "events": [telling.event(each, row.workflow_type) for each in events],
            "next": f"{request.path}?{BEFORE}={older}" if older else None,
        }
    )


@operator(GET=LOOK)
def ledger(request: OperatorRequest, number: int) -> HttpResponse:
    """The calls that were made, or may have been, in their order."""
    row = _row(request, number)
    calls = workflow_page.ledger(row, wording_of_type(row.workflow_type), workflow_page.effects_of(row))
    return JsonResponse({"calls": [telling.call(each, title, key, error) for each, title, key, error, _ in calls]})


@sensitive_variables()
@operator(POST=LOOK)
def find(request: OperatorRequest) -> HttpResponse:
    """The workflows that a text means, as Find has it. A POST: addresses are logged, and the text is of a patient."""
    if not request.user.has_perm(SEE_WORKFLOWS):
        raise PermissionDenied
    body = _body(request, "text")
    text = text_of(body, "text", finding.LONGEST) or ""
    if not text.strip():
        raise Problem(422, "text_invalid", "Send a text: what you know of the workflow, in full.")
    found = finding.find(text, actor=request.user.get_username(), api_key=request.api_key.name)
    sees = request.user.has_perm(SEE_SERVICES)
    return JsonResponse(
        {
            "workflows": [telling.found(each) for each in find_page.rows_of(found, sees_services=sees)],
            "tried": list(found.tried),
            "more": found.more,
        }
    )


def _row(request: OperatorRequest, number: int) -> Workflow:
    """The workflow, for a person who may see it; that they have looked is in the audit."""
    page: WorkflowAdmin = admin.site.get_model_admin(Workflow)  # type: ignore[assignment]
    row: Workflow = page.visible_row(request, str(number))
    operations.record_view(row.pk, actor=request.user.get_username(), api_key=request.api_key.name)
    return row


# --- Tasks and numbers ----------------------------------------------------------------------------------


@operator(GET=LOOK)
def tasks(request: OperatorRequest) -> HttpResponse:
    """What needs a person, by the filters and in the order of “For you”, a page at a time."""
    if not any(map(request.user.has_perm, needs_a_person.PERMISSIONS)):
        raise PermissionDenied
    _, given = needs_a_person.filters_of(request)
    place = request.GET.get(AFTER, "")
    after = needs.place(place)
    for name, value in request.GET.items():
        if (after is None and value) if name == AFTER else given.get(name) != value:
            raise _invalid(name)
    shown, number = needs_a_person.read(needs_a_person.asked_by(request.user, given), given, after)
    following = urlencode({**given, AFTER: str(shown.next)}) if shown.next else ""
    return JsonResponse(
        {
            "tasks": [telling.line(each) for each in needs_a_person_rows.lines(shown.items)],
            **telling.number(number),
            "next": f"{request.path}?{following}" if following else None,
        }
    )


@operator(GET=LOOK)
def task(request: OperatorRequest, number: int) -> HttpResponse:
    """One task: whose it is, until when, and what may be proposed of it."""
    page: ManualTaskAdmin = admin.site.get_model_admin(ManualTask)  # type: ignore[assignment]
    row: ManualTask = page.visible_row(request, str(number))
    operations.record_view(row.workflow_id, actor=request.user.get_username(), api_key=request.api_key.name)
    return JsonResponse(telling.task(read_task(row.pk), request.user))


@operator(GET=LOOK)
def counts(request: OperatorRequest) -> HttpResponse:
    """Home's sentence and numbers."""
    if not request.user.has_perm(SEE_WORKFLOWS):
        raise PermissionDenied
    return JsonResponse(telling.counts(counting.read(), request.user))


# --- Proposals ------------------------------------------------------------------------------------------


@operator(POST=PROPOSE)
def bulk_preview(request: OperatorRequest) -> HttpResponse:
    """Freeze what the filters find, and say what the verb would do to it. Nothing is done."""
    body = _body(request, "verb", "filters")
    asked = body.value.get("filters")
    if not isinstance(asked, dict) or not all(isinstance(each, str) for each in asked.values()):
        raise Problem(422, "filter_invalid", "Send the filters of the list: an object of texts.")
    request.GET = QueryDict(urlencode(asked))
    page, _ = _list(request)
    verb = text_of(body, "verb", 20) or ""
    if verb not in page.offered_for_all(request):
        offered = ", ".join(page.offered_for_all(request)) or "nothing: filter by state, step or code"
        raise Problem(422, "verb_invalid", f"What can be done to all that these filters find: {offered}.")
    rows, chosen_by, cause = page.all_matching(request)
    made = bulk.choose(verb, rows, user=request.user, chosen_by=chosen_by, cause=cause)
    return JsonResponse(telling.bulk(made, preview(made, request.user)), status=201)


@operator(GET=LOOK, POST=PROPOSE)
def all_proposals(request: OperatorRequest) -> HttpResponse:
    """GET: the newest proposals of the key's person. POST: store one; 202, also if it was sent before.

    Nothing is done before another person approves it.
    """
    if request.method != "POST":
        shown = [telling.proposal(each) for each in _of_person(request).order_by("-id")[:PROPOSALS_SHOWN]]
        return JsonResponse({"proposals": shown})
    idempotency_key = idempotency_key_of(request.headers)
    body = _body(request, "verb", "workflow", "task", "bulk", "version", "reason")
    verb, number = _what(body)
    version = text_of(body, "version", 100)
    if version is None:
        raise Problem(422, "version_invalid", "Send the version of what you have seen: it stands in that answer.")
    reason = _reason(body)
    made, replayed = proposals.propose(
        verb,
        number,
        key=request.api_key,
        user=request.user,
        reason=reason,
        version=version,
        idempotency_key=idempotency_key,
    )
    headers = {"Location": f"{request.path}/{made.pk}"}
    return JsonResponse({**telling.proposal(made), "replayed": replayed}, status=202, headers=headers)


@operator(GET=LOOK)
def proposal(request: OperatorRequest, number: int) -> HttpResponse:
    """A proposal of the key's person: what became of it."""
    asked = _own(request, number)
    return JsonResponse({**telling.proposal(asked), "decision_reason": proposals.why_closed(asked)})


@operator(POST=PROPOSE)
def withdraw(request: OperatorRequest, number: int) -> HttpResponse:
    """Withdraw a proposal of the key's person that waits; 409 if it is decided."""
    asked = _own(request, number)
    reason = answers.without_values(asked.workflow_id, _reason(_body(request, "reason")))
    proposals.close(asked.pk, user=request.user, seen=[number], reason=reason)
    return JsonResponse(telling.proposal(_own(request, number)))


def _own(request: OperatorRequest, number: int) -> Proposal:
    if (found := _of_person(request).filter(pk=number).first()) is None:
        raise Http404
    return found


def _of_person(request: OperatorRequest) -> QuerySet[Proposal]:
    return Proposal.objects.filter(asked_by=request.user).select_related("asked_by", "api_key", "decided_by")


def _what(body: Document) -> tuple[Proposal.Verb, int]:
    """The verb, and the number of what it is about."""
    verb = body.value.get("verb")
    if verb not in Proposal.Verb.values:
        raise Problem(422, "verb_invalid", f"The verb is one of: {', '.join(Proposal.Verb.values)}.")
    field = TARGETS[Proposal.Verb(verb)]
    number = body.value.get(field)
    given = {each for each in TARGETS.values() if each in body.value}
    if given != {field} or isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 2**63:
        raise Problem(422, "target_invalid", f"To {verb}, send the number of one {field}, and nothing else's.")
    return Proposal.Verb(verb), number


def _reason(body: Document) -> str:
    reason = (text_of(body, "reason", LONGEST_REASON) or "").strip()
    if not reason:
        raise Problem(422, "reason_invalid", f"Send a reason, a text of 1 to {LONGEST_REASON} characters.")
    return reason


def _body(request: OperatorRequest, *fields: str) -> Document:
    """The body, which is read once although a view may run twice."""
    if request.document is None:
        request.document = json_object_of(request)
    refuse_other_fields(request.document, *fields)
    return request.document

"""LEFT UNDONE: the page of failed best-effort steps by step and code, and the button that runs all of a group again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from workflows import operations
from workflows.definition import definitions, wording_of_type
from workflows.errors import NotAllowed
from workflows.features.bulk import operations as bulk
from workflows.features.deferred_steps import left_undone
from workflows.features.deferred_steps.left_undone import MOST, READ, SAMPLES, Group
from workflows.models import Workflow
from workflows.models.failure import Cause
from workflows.telling import words
from workflows.telling.steps import title_of
from workflows.wording import words_for_code

SEE = "workflows.view_workflow"


@dataclass(frozen=True, slots=True)
class Line:
    """A group as the page shows it. `offers`: the page offers to run its step again."""

    group: Group
    what: str
    why: str
    number: str
    samples: Sequence[int]
    offers: bool


@require_http_methods(["GET", "HEAD", "POST"])
def view(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    if not request.user.has_perm(SEE):
        raise PermissionDenied
    if request.method == "POST":
        return _choose(request)
    found, since = left_undone.groups(), left_undone.reaches_back_to()
    number = sum(len(each.ids) for each in found)
    context = {
        **site.each_context(request),
        "title": "Steps left undone",
        "lines": [_line(each) for each in found],
        "number": f"{MOST:,}+" if number >= MOST else f"{number:,}",
        "runs_again": request.user.has_perm(operations.FOLLOW_UP),
        "since": since,
        "read": f"{READ:,}",
    }
    return TemplateResponse(request, "admin/workflows/left_undone.html", context)


def _line(group: Group) -> Line:
    cause, wording = group.cause, wording_of_type(group.cause.workflow_type)
    definition = definitions().get(cause.workflow_type)
    step = title_of(wording, cause.step) or words.plain(cause.step)
    return Line(
        group,
        what=f"{words.workflow_type(cause.workflow_type)}: “{step}”",
        why=words_for_code(wording, cause.code).staff,
        number=f"{len(group.ids):,}",
        samples=group.ids[:SAMPLES],
        offers=bool(group.ids and definition and definition.find_step(cause.step)),
    )


def _choose(request: HttpRequest) -> HttpResponse:
    """Store the workflows of a group as a bulk operation, and redirect to its preview."""
    assert request.user.is_authenticated
    given = [request.POST.get(name) for name in ("workflow_type", "step", "code")]
    if None in given or any("\x00" in (each or "") for each in given):
        raise BadRequest("No group is named.")
    cause = Cause(*(each or "" for each in given))
    ids = next((each.ids for each in left_undone.groups(cause)), [])
    rows = Workflow.objects.filter(pk__in=ids).order_by().values("pk")
    chosen_by = f"left undone: {cause.workflow_type}; step: {cause.step}; code: {cause.code or 'none'}"
    try:
        made = bulk.choose("run_again", rows, user=request.user, chosen_by=chosen_by, step=cause.step)
    except NotAllowed as refusal:
        messages.warning(request, str(refusal))
        return HttpResponseRedirect(request.path)
    return HttpResponseRedirect(reverse("admin:workflows_bulkoperation_start", args=[made.pk]))

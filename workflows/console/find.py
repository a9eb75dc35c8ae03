"""Find: one box for all by which people know a workflow.

The text is sent by POST, which redirects to a page with what was found, so that *Back* sends nothing again. No cache
stores that page, and its address, which proxies log and browsers remember, has nothing of the text: the session keeps
it, sealed (`console.searches`). On a shared desk the browser does not offer it to the next person (`autocomplete`, in
the templates).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib.admin import AdminSite
from django.contrib.sessions.backends.base import SessionBase
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from workflows.console import searches
from workflows.definition import WorkflowDefinition, definitions
from workflows.errors import DUPLICATE
from workflows.extension import installed
from workflows.models import Effect, State, Workflow
from workflows.operations.guards import SEE_SERVICES
from workflows.search import find as finding
from workflows.telling import words
from workflows.telling.money import in_short
from workflows.telling.patient import amount_told, caller
from workflows.telling.steps import step_of
from workflows.wording import name_of_code

PERMISSION = "workflows.view_workflow"
# The name of a search in the page's address.
SEARCH = "search"


class FindForm(forms.Form):
    q = forms.CharField(
        label="Find",
        max_length=finding.LONGEST,
        error_messages={"required": "Type what you know of the workflow."},
    )


@sensitive_post_parameters("q")
def view(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    """POST searches, and redirects: to a single workflow, or to what a GET shows: several, or what was tried if none.

    A GET that names no search that the session keeps shows the form.
    """
    if not request.user.has_perm(PERMISSION):
        raise PermissionDenied
    assert request.user.is_authenticated
    if request.method == "POST":
        return HttpResponseRedirect(_search(request.session, request.POST, actor=request.user.get_username()))
    name = request.GET.get(SEARCH, "")
    kept = searches.kept(request.session, name)
    shown: dict[str, Any] = {"is_gone": bool(name) and kept is None}
    sees = request.user.has_perm(SEE_SERVICES)
    if kept and (found := kept.found):
        shown |= {"found": found, "rows": rows_of(found, sees_services=sees), "limit": finding.SHOWN, "cells": cells()}
        shown["refused"] = [line for each in installed() for line in each.found(found, request.user)]
    form = FindForm({"q": kept.typed} if kept and (kept.typed or not kept.found) else None)
    context = {**site.each_context(request), "title": "Find", "form": form, "kinds": finding.what_is_found(), **shown}
    return TemplateResponse(request, "admin/workflows/find.html", context)


@sensitive_variables()
def _search(session: SessionBase, sent: QueryDict, *, actor: str) -> str:
    """The address of what was found."""
    form = FindForm(sent)
    found = finding.find(form.cleaned_data["q"], actor=actor) if form.is_valid() else None
    if found and len(found.ids) == 1 and not found.refused:
        return reverse("admin:workflows_workflow_change", args=found.ids)
    return f"{reverse('admin:find')}?{urlencode({SEARCH: searches.keep(session, sent.get('q', ''), found)})}"


def cells() -> list[tuple[str, str]]:
    """The same page of other cells, by their names. The links do not contain what was typed."""
    return [(name, f"{url.strip().rstrip('/')}{reverse('admin:find')}") for name, url in settings.CELLS.items()]


def rows_of(found: finding.Found, *, sees_services: bool) -> list[dict[str, Any]]:
    """What distinguishes the workflows for people: the patient, the charges, and the search key that found each."""
    rows = Workflow.objects.with_state().filter(pk__in=found.ids).defer("context").order_by("-pk")
    effects: dict[int, list[Effect]] = defaultdict(list)
    for effect in Effect.objects.filter(workflow__in=found.ids).defer("error_message").order_by("id"):
        effects[effect.workflow_id].append(effect)
    known = definitions()
    return [
        {
            "row": row,
            "type": words.workflow_type(row.workflow_type),
            "badge": words.state_badge(row),
            "step": "" if row.status == Workflow.Status.COMPLETE else step_of(row, row.current_step),
            "why": _why(row) if sees_services else words.unnamed(_why(row), row.parked_on),
            "age": words.age(row.created_at),
            "about": ", ".join(shown for _, shown in caller(known.get(row.workflow_type), row.payload)),
            "money": _money(row, known.get(row.workflow_type), effects[row.pk]),
            "by": ", ".join(found.by.get(row.pk, ())),
        }
        for row in rows
    ]


def _why(row: Workflow) -> str:
    """What it waits for, or why it failed, in a few words: a second submission is told from the first by that."""
    if row.state in (State.WAITING, State.PARKED, State.COMPENSATING):
        return row.waiting_for
    told = row.state in (State.FAILED, State.RETRYING) and row.last_error_code != DUPLICATE  # the badge says so
    return name_of_code(row.last_error_code) if told else ""


def _money(row: Workflow, definition: WorkflowDefinition | None, effects: list[Effect]) -> str:
    return in_short(definition, amount_told(definition, row.payload), effects)

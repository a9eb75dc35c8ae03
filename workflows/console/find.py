"""Find: one box for all by which people know a workflow.

The text is sent by POST, and appears only in the answer, which no cache stores. It is not in an address, which proxies
log and browsers remember, nor in a message, which the session stores. On a shared desk the browser does not offer it to
the next person (`autocomplete`, in the templates).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters

from workflows.definition import WorkflowDefinition, definitions
from workflows.extension import installed
from workflows.models import Effect, State, Workflow
from workflows.search import find as finding
from workflows.telling import words
from workflows.telling.money import in_short
from workflows.telling.patient import amount_told, caller
from workflows.telling.steps import step_of
from workflows.wording import name_of_code

PERMISSION = "workflows.view_workflow"


class FindForm(forms.Form):
    q = forms.CharField(
        label="Find",
        max_length=finding.LONGEST,
        error_messages={"required": "Type what you know of the workflow."},
    )


@sensitive_post_parameters("q")
def view(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    """GET shows the form. POST searches: it opens a single workflow, lists several, and says what was tried if none."""
    if not request.user.has_perm(PERMISSION):
        raise PermissionDenied
    assert request.user.is_authenticated
    form = FindForm(request.POST if request.method == "POST" else None)
    shown: dict[str, Any] = {}
    if form.is_valid():
        found = finding.find(form.cleaned_data["q"], actor=request.user.get_username())
        if len(found.ids) == 1 and not found.refused:
            return HttpResponseRedirect(reverse("admin:workflows_workflow_change", args=found.ids))
        shown = {"found": found, "rows": rows_of(found), "limit": finding.SHOWN, "cells": cells()}
        shown["refused"] = [line for each in installed() for line in each.found(found, request.user)]
    context = {**site.each_context(request), "title": "Find", "form": form, "kinds": finding.what_is_found(), **shown}
    return TemplateResponse(request, "admin/workflows/find.html", context)


def cells() -> list[tuple[str, str]]:
    """The same page of other cells, by their names. The links do not contain what was typed."""
    return [(name, f"{url.strip().rstrip('/')}{reverse('admin:find')}") for name, url in settings.CELLS.items()]


def rows_of(found: finding.Found) -> list[dict[str, Any]]:
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
            "badge": words.badge(row.state, words.state_label(row)),
            "step": "" if row.status == Workflow.Status.COMPLETE else step_of(row, row.current_step),
            "why": _why(row),
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
    return name_of_code(row.last_error_code) if row.state in (State.FAILED, State.RETRYING) else ""


def _money(row: Workflow, definition: WorkflowDefinition | None, effects: list[Effect]) -> str:
    return in_short(definition, amount_told(definition, row.payload), effects)

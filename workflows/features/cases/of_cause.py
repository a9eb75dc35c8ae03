"""Notes on a cause of failures: what colleagues have to know of the incident. They stand in the cause's history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from workflows.console import failures, links
from workflows.errors import NotAllowed
from workflows.extension import Panel
from workflows.features.cases.operations import MOST_CHARACTERS
from workflows.features.cases.page import NOTES_SHOWN, NoteForm
from workflows.models import CircuitEvent
from workflows.models.failure import Cause
from workflows.operations.guards import ACKNOWLEDGE, require, stated
from workflows.wording import of_person

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite
    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse


def notes(cause: Cause) -> list[CircuitEvent]:
    """The notes on a cause, newest first: one more than are shown."""
    found = CircuitEvent.objects.filter(service=cause.name, kind=CircuitEvent.Kind.NOTED)
    return list(found.order_by("-id")[: NOTES_SHOWN + 1])


def add_note(cause: Cause, *, user: User, reason: str) -> None:
    """Store a note on a cause; `reason` is its text. The same text from the same user, twice in a row, is one note."""
    require(user, ACKNOWLEDGE)
    text, actor = stated(reason), user.get_username()
    if not text:
        raise NotAllowed("Write the note: there is no text.")
    if len(text) > MOST_CHARACTERS:
        raise NotAllowed(f"A note has at most {MOST_CHARACTERS:,} characters; this one has {len(text):,}.")
    if [(each.actor, each.reason) for each in notes(cause)[:1]] != [(actor, text)]:
        CircuitEvent.objects.create(service=cause.name, kind=CircuitEvent.Kind.NOTED, actor=actor, reason=text)


def panels(cause: Cause, request: HttpRequest) -> Iterator[Panel]:
    """The notes, and a link to add one for users who may."""
    found, may_add = notes(cause), request.user.has_perm(ACKNOWLEDGE)
    if found or may_add:
        shown = {"notes": found[:NOTES_SHOWN], "more_notes": len(found) > NOTES_SHOWN}
        url = f"{reverse('admin:incident_note')}?{links.query(cause)}" if may_add else ""
        yield Panel("below", "admin/workflows/cases/notes_of_cause.html", {**shown, "add_note_url": url})


def view(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    """Add a note to a cause: GET says what that means, POST does it."""
    if not (request.user.has_perm(ACKNOWLEDGE) and request.user.has_perm(failures.SEE)):
        raise PermissionDenied
    cause = failures.cause_of(request)
    if cause is None:
        raise Http404("No cause of failures is named.")
    form = NoteForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        assert request.user.is_authenticated
        try:
            add_note(cause, user=request.user, reason=form.cleaned_data["reason"])
            messages.success(request, "The note is added.")
        except NotAllowed as refusal:
            messages.error(request, str(refusal))
        return HttpResponseRedirect(links.incident(cause))
    context = {
        **site.each_context(request),
        "title": "Add a note",
        "verb": {"label": "Add a note"},
        "asks": "Add a note to this cause",
        "consequences": [
            "The note stands on the page of this cause, for all who may see workflows, and in the audit.",
            of_person("It cannot be changed or deleted. No patient ever sees it. Nothing else changes."),
        ],
        "form": form,
        "back": links.incident(cause),
    }
    return TemplateResponse(request, "admin/workflows/of_cause.html", context)

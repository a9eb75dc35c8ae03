"""Notes, and an acknowledgement that is taken back, on the page of a workflow."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

from django import forms

from workflows import operations
from workflows.console.base import ReasonForm, Verb
from workflows.extension import Panel
from workflows.features.cases import operations as cases
from workflows.models import CaseNote, Workflow

NOTES_SHOWN = 50


class NoteForm(ReasonForm):
    reason = forms.CharField(
        label="Note",
        max_length=cases.MOST_CHARACTERS,
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text=f"At most {cases.MOST_CHARACTERS:,} characters. Kept with your name. No patient data, please.",
    )
    form = forms.UUIDField(required=False, initial=uuid4, widget=forms.HiddenInput)


NOTE = Verb(
    slug="note",
    label="Add a note",
    permission=cases.MAY_NOTE,
    operation=cases.add_note,
    applies=lambda row: True,
    consequences=lambda row: [
        "The note stands on the workflow's page, for all who may see the workflow. Nothing else changes.",
        "It cannot be changed or deleted: it goes when what was sent is deleted. The patient never sees it.",
    ],
    form=NoteForm,
    asks="Add a note to {}",
    done="The note is added.",
)
NOT_DEALT_WITH = Verb(
    slug="not_dealt_with",
    label="Not dealt with after all",
    permission=operations.ACKNOWLEDGE,
    operation=cases.not_dealt_with,
    applies=lambda row: bool(cases.acknowledged(row)),
    consequences=lambda row: [
        "It is acknowledged no more, and comes back to the list of what needs a person, until somebody acts.",
        "Nothing is called, and nothing is refunded or reversed.",
    ],
    seen=(("seen", cases.acknowledged),),
    asks="Say that {} is not dealt with after all",
    done="It needs a person again.",
    rare=True,
)
VERBS = (NOTE, NOT_DEALT_WITH)


def panels(row: Workflow) -> Iterable[Panel]:
    """The notes, newest first."""
    notes = list(CaseNote.objects.filter(workflow=row.pk).order_by("-id")[: NOTES_SHOWN + 1])
    if notes:
        shown = {"case_notes": notes[:NOTES_SHOWN], "more_case_notes": len(notes) > NOTES_SHOWN}
        yield Panel("caller", "admin/workflows/cases/notes.html", shown)

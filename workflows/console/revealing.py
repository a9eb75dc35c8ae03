"""Reveal: show values of a patient that are masked elsewhere, for a purpose, while the page is open."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from django import forms

from workflows import operations
from workflows.console.verbs import ReasonForm, Verb, reason_field
from workflows.definition import definitions
from workflows.models import Workflow
from workflows.telling import words
from workflows.wording import of_person

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class RevealForm(ReasonForm):
    fields_asked = forms.MultipleChoiceField(label="What", widget=forms.CheckboxSelectMultiple)
    reason = reason_field(
        of_person("What you need it for. Kept in the audit, with your name. No patient data, please."), label="Purpose"
    )
    field_order = ("fields_asked", "reason")

    def __init__(self, *args: Any, row: Workflow, **kwargs: Any) -> None:
        super().__init__(*args, row=row, **kwargs)
        self.fields["fields_asked"].choices = [  # type: ignore[attr-defined]
            (name, _label(row, name)) for name in operations.revealable(row)
        ]


def _label(row: Workflow, name: str) -> str:
    return words.label_of_field(definitions()[row.workflow_type], name)


def _reveal(row_id: int, *, user: User, fields_asked: Collection[str], reason: str) -> list[tuple[str, str]]:
    found = operations.reveal(row_id, user=user, fields=fields_asked, reason=reason)
    row = Workflow.objects.only("workflow_type").get(pk=row_id)
    return [(_label(row, name), _shown(value)) for name, value in found.items()]


def _shown(value: Any) -> str:
    """A value as text. It may be anything, because nothing has checked yet what a sender has put there."""
    if value is None:
        return "not given"
    return words.cut(words.value(value)) if words.is_scalar(value) else words.MASK


REVEAL = Verb(
    slug="reveal",
    label="Reveal",
    permission=operations.REVEAL,
    operation=_reveal,
    applies=lambda row: bool(operations.revealable(row)),
    consequences=lambda row: [
        "You see what you choose in full. Choose only what you need.",
        "Before that, the audit gets a line with your name, what you chose and your purpose.",
        "The values are kept nowhere, and in no link: to see them again, ask again.",
    ],
    done="",
    shows="Leave this page when you are done. The audit, for auditors, has your name, what you chose and your purpose.",
    form=RevealForm,
)

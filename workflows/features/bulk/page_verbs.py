"""The verbs of a bulk operation's page: start, approve, pause, resume, and cancel the rest."""

from __future__ import annotations

from typing import Any

from django import forms

from workflows.console.verbs import KEPT, OptionalReasonForm, ReasonForm, Verb, colleague_field, reason_field
from workflows.features.bulk import operations as bulk
from workflows.features.bulk import telling as bulk_operations
from workflows.models import BulkOperation
from workflows.models.manual_task import deciders
from workflows.operations.bulk_verbs import verbs
from workflows.telling import words

State = BulkOperation.State

UNDER_WAY = (State.ASKED, State.RUNNING, State.PAUSED)


class _Verb(Verb):
    """A verb for every user who may do at least one of the operations to a row."""

    def is_for(self, user: Any) -> bool:
        return any(user.has_perm(verb.permission) for verb in verbs().values())


class StartForm(ReasonForm):
    """Asks for the reason, which has the focus, and the pace."""

    reason = reason_field()
    pace = forms.IntegerField(
        min_value=1,
        max_value=bulk.FASTEST,
        help_text=f"How many a second at the most, up to {bulk.FASTEST}.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        verb = verbs()[self.row.verb]
        if verb.asks_colleague:
            self.fields = {"to": colleague_field(deciders()), **self.fields}
        next(iter(self.fields.values())).widget.attrs["autofocus"] = True
        self.fields["pace"].initial = bulk.usual_pace(self.row.verb)
        if verb.about_reason:
            self.fields["reason"].help_text = f"{verb.about_reason} {KEPT}"


def _verb(slug: str, label: str, operation: Any, states: tuple[str, ...], consequences: Any, **how: Any) -> Verb:
    return _Verb(
        slug=slug,
        label=label,
        permission=(),
        operation=operation,
        applies=lambda row: row.state in states,
        consequences=consequences,
        **{"asks": f"{label} the {{}}", "done": "", "form": OptionalReasonForm, **how},
    )


VERBS = (
    _verb(
        "start",
        "Start",
        bulk.start,
        (State.DRAFT,),
        lambda row: bulk_operations.of_start(row, row.asked_by),
        form=StartForm,
        why_not=bulk_operations.why_not_start,
        named=lambda row: "when approved" if bulk.why_four_eyes(row, row.asked_by) else "",
    ),
    _verb(
        "approve",
        "Approve",
        bulk.approve,
        (State.ASKED,),
        lambda row: [
            f"{row.asked_by.get_username()} asked for it at {words.clock(row.asked_at)}: {words.ended(row.reason)}",
            *bulk_operations.of_items(row, row.asked_by),
        ],
        why_not=bulk.why_not_approve,
    ),
    _verb(
        "pause",
        "Pause",
        bulk.pause,
        (State.RUNNING,),
        lambda row: ["No further item is carried out until somebody resumes it. What is done stays."],
        done="It is paused.",
    ),
    _verb(
        "resume",
        "Resume",
        bulk.resume,
        (State.PAUSED,),
        lambda row: [f"It goes on in the name of {row.asked_by.get_username()}, at {row.pace} a second."],
        done="It goes on.",
    ),
    _verb(
        "stop",
        "Cancel the rest",
        bulk.stop,
        UNDER_WAY,
        lambda row: ["What is left is not touched. What is done stays: it is not taken back."],
        asks="Cancel the rest of the {}",
        dangerous=True,
    ),
)

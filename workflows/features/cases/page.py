"""Notes, a lead who is asked, and an acknowledgement that is taken back, on the page of a workflow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django import forms

from workflows import operations
from workflows.console import links
from workflows.console.home import First
from workflows.console.verbs import OptionalReasonForm, ReasonForm, Verb, read_once
from workflows.extension import Note, Panel
from workflows.features.cases import operations as cases
from workflows.health.bounded import Link
from workflows.models import CaseNote, Workflow
from workflows.telling import words
from workflows.wording import of_person

if TYPE_CHECKING:
    from django.contrib.auth.models import User

NOTES_SHOWN = 50
ANSWERS_SHOWN = 3


class NoteForm(ReasonForm):
    reason = forms.CharField(
        label="Note",
        max_length=cases.MOST_CHARACTERS,
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text=of_person(
            f"At most {cases.MOST_CHARACTERS:,} characters. Kept with your name. No patient data, please."
        ),
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
        of_person("It cannot be changed or deleted: it goes when what was sent is deleted. The patient never sees it."),
    ],
    form=NoteForm,
    asks="Add a note to {}",
    done="The note is added.",
    rare=True,
)
NOT_DEALT_WITH = Verb(
    slug="not_dealt_with",
    label="Take back the acknowledgement",
    permission=operations.ACKNOWLEDGE,
    operation=cases.not_dealt_with,
    applies=lambda row: bool(cases.acknowledged(row)),
    consequences=lambda row: [
        of_person(
            "It is acknowledged no more: “For you” lists it again, with those that need nobody if the patient was told "
            "what to do."
        ),
        "Nothing is called, and nothing is refunded or reversed.",
    ],
    seen=(("seen", cases.acknowledged),),
    asks="Take back the acknowledgement of {}",
    done="The acknowledgement is taken back.",
    rare=True,
)
ASK_LEAD = Verb(
    slug="ask_lead",
    label="Ask a lead",
    permission=cases.MAY_NOTE,
    operation=cases.ask_lead,
    applies=lambda row: row.status != Workflow.Status.COMPLETE and not _asking(row),
    consequences=lambda row: [
        "Support leads find it in “For you”, until one has seen to it or somebody acts on the workflow.",
        "What you write stands among the notes on its page. Nothing else changes.",
    ],
    form=NoteForm,
    asks="Ask a lead to see to {}",
    done="A lead is asked.",
    rare=True,
)


class TeamForm(NoteForm):
    team = forms.ChoiceField(label="Team")
    field_order = ("team", "reason", "form")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [("", "Choose a team"), *((each, words.team(each)) for each in cases.teams())]
        self.fields["team"].choices = choices  # type: ignore[attr-defined]


HAND_TO_TEAM = Verb(
    slug="hand_to_team",
    label="Hand to team",
    permission=cases.MAY_NOTE,
    operation=cases.hand_to_team,
    applies=lambda row: row.status != Workflow.Status.COMPLETE,
    consequences=lambda row: [
        "The team finds it in “For you”, until one of them has seen to it or somebody acts on the workflow.",
        *(f"It leaves the team {words.team(each.team)}." for each in _handed(row)),
        "What you write stands among the notes on its page. Who may do what stays as it is.",
    ],
    form=TeamForm,
    asks="Hand {} to a team",
    done="It is handed over.",
    rare=True,
)
TEAM_HAS_SEEN = Verb(
    slug="team_has_seen",
    label="Mark as seen to by the team",
    permission=(operations.ASSIGN, *cases.MAY_NOTE),
    operation=cases.team_has_seen,
    applies=lambda row: bool(_handed(row)),
    why_not=lambda row, user: next((cases.why_not_of_team(each.team, user) for each in _handed(row)), ""),
    consequences=lambda row: [
        *(
            f"This ends what {each.actor} has asked the team {words.team(each.team)} for. If you are not in that team, "
            "the history says so."
            for each in _handed(row)
        ),
        "It leaves their “For you”, unless it is there for another reason.",
    ],
    named=lambda row: ", ".join(words.team(each.team) for each in _handed(row)),
    seen=(("seen", lambda row: [each.pk for each in _handed(row)]),),
    form=OptionalReasonForm,
    asks="Mark {} as seen to by the team",
    done="It is seen to.",
)
SEEN = Verb(
    slug="lead_has_seen",
    label="Mark as seen to by a lead",
    permission=operations.ASSIGN,
    operation=cases.lead_has_seen,
    applies=lambda row: bool(_asking(row)),
    consequences=lambda row: [
        *(
            f"This ends what {each.actor} has asked a lead for. What you write is in the history."
            for each in _asking(row)
        ),
        "It leaves “For you”, unless it needs one for another reason.",
    ],
    seen=(("seen", lambda row: [each.pk for each in _asking(row)]),),
    form=OptionalReasonForm,
    asks="Mark {} as seen to by a lead",
    done="It is seen to.",
)
VERBS = (NOTE, ASK_LEAD, HAND_TO_TEAM, SEEN, TEAM_HAS_SEEN, NOT_DEALT_WITH)


def _asking(row: Workflow) -> list[CaseNote]:
    """The notes that ask a lead."""
    return [each for each in _asked(row) if not each.team]


def _handed(row: Workflow) -> list[CaseNote]:
    """The notes that hand it to a team."""
    return [each for each in _asked(row) if each.team]


def _asked(row: Workflow) -> list[CaseNote]:
    return read_once(row, "asks_somebody", lambda: list(cases.asked().filter(workflow=row.pk).order_by("id")))


def lines(row: Workflow) -> Iterator[Note]:
    """Who asked a lead, or handed it to a team, and when."""
    for each in _handed(row):
        when = words.clock(each.lead_asked_at)
        yield Note(f"{each.actor} handed it to the team {words.team(each.team)} at {when}: see the notes.")
    for each in _asking(row):
        if at := each.lead_asked_at:
            yield Note(f"{each.actor} asked a lead at {words.clock(at)} to see to it: see the notes.")


def panels(row: Workflow) -> Iterable[Panel]:
    """The notes, newest first."""
    notes = list(CaseNote.objects.filter(workflow=row.pk).order_by("-id")[: NOTES_SHOWN + 1])
    if notes:
        shown = {"case_notes": notes[:NOTES_SHOWN], "more_case_notes": len(notes) > NOTES_SHOWN}
        yield Panel("caller", "admin/workflows/cases/notes.html", shown)


def first_lines(user: User) -> list[First]:
    """What others have done about what this user asked a lead for, as lines on Home."""
    found: Iterable[Any] = cases.answered(user)[:ANSWERS_SHOWN] if any(map(user.has_perm, cases.MAY_NOTE)) else ()
    return [
        First(
            f"{each.by} has acted on workflow {each.workflow_id}, for which you asked a lead",
            links.to(Link("workflow", pk=str(each.workflow_id))),
            "You",
            words.age_of(each.answered_at),
        )
        for each in found
    ]

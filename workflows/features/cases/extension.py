"""What cases add to pages and commands: notes, a lead who is asked, and an acknowledgement that is taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from workflows.extension import Extension, Note, Panel, ToTell
from workflows.features.cases import operations
from workflows.health.bounded import Link
from workflows.health.needs_a_person import Source
from workflows.health.undecided import Undecided
from workflows.models import CaseNote
from workflows.operations import guards

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from workflows.console.home import First
    from workflows.console.verbs import Verb
    from workflows.health.failures import Group
    from workflows.management.workflow.subcommand import Subcommand
    from workflows.models import Workflow
    from workflows.models.failure import Cause


class CasesExtension(Extension):
    needs_a_person = (
        Source(
            number=6,
            kind="lead",
            label="Lead asked",
            model=CaseNote,
            rows=operations.asking,
            since="lead_asked_at",
            columns=("actor",),
            asks=lambda row: f"{row.actor} asks a lead to see to it",
            whom="Support leads",
            permissions=(guards.ASSIGN,),
        ),
        Source(
            number=8,
            kind="team",
            label="Handed to a team",
            model=CaseNote,
            rows=operations.handed,
            since="lead_asked_at",
            columns=("actor", "team"),
            asks=lambda row: f"{row.actor} hands it to the team",
            whom="The team",
            team="team",
        ),
    )
    to_tell = (
        ToTell(
            "lead.asked",
            "whole_workflow",
            """SELECT id, workflow_id, lead_asked_at FROM workflows_casenote
                WHERE lead_asked_at IS NOT NULL AND team = ''""",
            [guards.ASSIGN],
            is_urgent=False,
        ),
        ToTell(
            "team.asked",
            "whole_workflow",
            """SELECT id, workflow_id, lead_asked_at, team FROM workflows_casenote
                WHERE lead_asked_at IS NOT NULL AND team <> ''""",
            operations.MAY_NOTE,
            is_urgent=False,
            of_teams=True,
        ),
    )
    undecided = (
        Undecided(
            43,
            "workflows_casenote WHERE team = '' AND lead_asked_at <= statement_timestamp() - interval '1 day'",
            Link("workflow", page="needs_a_person", filters=(("kind", "lead"),)),
            "request to a lead has waited for a day",
            "requests to leads have waited for a day",
        ),
        Undecided(
            44,
            "workflows_casenote WHERE team <> '' AND lead_asked_at <= statement_timestamp() - interval '1 day'",
            Link("workflow", page="needs_a_person", filters=(("kind", "team"),)),
            "workflow handed to a team has waited for a day",
            "workflows handed to teams have waited for a day",
        ),
    )
    empties = ("UPDATE workflows_casenote SET text = '', lead_asked_at = NULL WHERE workflow_id = ANY (%(ids)s)",)
    belongs = ("workflows_casenote WHERE workflow_id",)

    def subcommands(self) -> Mapping[str, Subcommand]:
        from workflows.features.cases import command  # only this command needs it

        return command.SUBCOMMANDS

    def first_lines(self, user: User) -> Sequence[First]:
        from workflows.features.cases import page

        return page.first_lines(user)

    def verbs(self) -> Sequence[Verb]:
        from workflows.features.cases import page

        return page.VERBS

    def notes(self, workflow: Workflow, user: User) -> Iterable[Note]:
        from workflows.features.cases import page

        return page.lines(workflow)

    def panels(self, workflow: Workflow, user: User) -> Iterable[Panel]:
        from workflows.features.cases import page

        return page.panels(workflow)

    def incident(self, cause: Cause, group: Group | None, request: HttpRequest) -> Iterable[Panel]:
        from workflows.features.cases import of_cause

        return of_cause.panels(cause, request)

    def views(self) -> Mapping[str, Callable[..., HttpResponseBase]]:
        from workflows.features.cases import of_cause

        return {"incident_note": of_cause.view}

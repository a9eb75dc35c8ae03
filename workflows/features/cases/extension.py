"""What cases add to pages and commands: notes, a lead who is asked, and an acknowledgement that is taken back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from workflows.extension import Extension, Note, Panel
from workflows.features.cases import operations
from workflows.health.needs_a_person import Source
from workflows.models import CaseNote
from workflows.operations import guards

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from workflows.console.base import Verb
    from workflows.management.workflow.subcommand import Subcommand
    from workflows.models import Workflow


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
    empties = ("UPDATE workflows_casenote SET text = '', lead_asked_at = NULL WHERE workflow_id = ANY (%(ids)s)",)
    belongs = ("workflows_casenote WHERE workflow_id",)

    def subcommands(self) -> Mapping[str, Subcommand]:
        from workflows.features.cases import command  # only this command needs it

        return command.SUBCOMMANDS

    def verbs(self) -> Sequence[Verb]:
        from workflows.features.cases import page

        return page.VERBS

    def notes(self, workflow: Workflow, user: User) -> Iterable[Note]:
        from workflows.features.cases import page

        return page.lines(workflow)

    def panels(self, workflow: Workflow, user: User) -> Iterable[Panel]:
        from workflows.features.cases import page

        return page.panels(workflow)

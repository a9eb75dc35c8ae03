"""What pauses add to pages and commands: the verbs, the sentence, a filter, and those that are overdue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workflows.extension import Extension, Said, ToTell
from workflows.features.pauses import operations
from workflows.health.bounded import Link
from workflows.health.needs_a_person import Source
from workflows.health.undecided import Undecided
from workflows.models import Pause
from workflows.operations import guards

if TYPE_CHECKING:
    from workflows.console.verbs import Verb
    from workflows.console.workflow_filters import OfFeature
    from workflows.management.workflow.subcommand import Subcommand
    from workflows.models import Attempt, Workflow


class PausesExtension(Extension):
    needs_a_person = (
        Source(
            number=7,
            kind="pause",
            label="Overdue pause",
            model=Pause,
            rows=operations.overdue,
            since="until",
            columns=("actor",),
            asks=lambda row: f"The pause by {row.actor} is over its time: resume it?",
            whom="Support",
            permissions=(guards.RUN_NOW,),
            is_late=True,
        ),
    )
    undecided = (
        Undecided(
            43,
            "workflows_pause WHERE begun_at IS NOT NULL AND until <= statement_timestamp()",
            Link("workflow", filters=(("paused", "overdue"),)),
            "pause is over its time",
            "pauses are over their time",
        ),
    )
    to_tell = (
        ToTell(
            "pause.overdue",
            "whole_workflow",
            """SELECT id, workflow_id, until FROM workflows_pause
                WHERE begun_at IS NOT NULL AND until <= statement_timestamp()""",
            [guards.RUN_NOW],
            is_urgent=False,
        ),
    )
    empties = ("DELETE FROM workflows_pause WHERE workflow_id = ANY (%(ids)s)",)

    def subcommands(self) -> Mapping[str, Subcommand]:
        from workflows.features.pauses import command  # only this command needs it

        return command.SUBCOMMANDS

    def filters(self) -> Sequence[type[OfFeature]]:
        from workflows.features.pauses import page

        return (page.PausedFilter,)

    def verbs(self) -> Sequence[Verb]:
        from workflows.features.pauses import page

        return page.VERBS

    def says(self, workflow: Workflow, attempt: Attempt | None) -> Said:
        from workflows.features.pauses import page

        return page.said(workflow)

"""What cases add to pages and commands: notes, and an acknowledgement that is taken back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from workflows.extension import Extension, Panel

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from workflows.console.base import Verb
    from workflows.management.workflow.subcommand import Subcommand
    from workflows.models import Workflow


class CasesExtension(Extension):
    empties = ("UPDATE workflows_casenote SET text = '' WHERE workflow_id = ANY (%(ids)s)",)
    belongs = ("workflows_casenote WHERE workflow_id",)

    def subcommands(self) -> Mapping[str, Subcommand]:
        from workflows.features.cases import command  # only this command needs it

        return command.SUBCOMMANDS

    def verbs(self) -> Sequence[Verb]:
        from workflows.features.cases import page

        return page.VERBS

    def panels(self, workflow: Workflow, user: User) -> Iterable[Panel]:
        from workflows.features.cases import page

        return page.panels(workflow)

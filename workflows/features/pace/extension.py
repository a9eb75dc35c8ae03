"""What holds, paces and caps add to pages, metrics and commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from workflows.extension import Extension, InBar
from workflows.features.pace.health import Paces, active

if TYPE_CHECKING:
    from types import ModuleType

    from workflows.management.workflow.subcommand import Subcommand


class PaceExtension(Extension):
    bar = (InBar(80, "Queues", "admin:workflows_pace_changelist", ["workflows.view_pace"]),)

    def figures(self, at: datetime) -> Paces:
        return Paces(active())

    def subcommands(self) -> Mapping[str, Subcommand]:
        from workflows.features.pace import command  # for that command alone

        return command.SUBCOMMANDS

    def lists(self) -> Sequence[ModuleType]:
        from workflows.features.pace import page

        return (page,)

    def banners(self) -> Sequence[str]:
        from workflows.features.pace import page

        return page.banner()

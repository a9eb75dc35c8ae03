"""What holds, paces and caps bring to pages, metrics and commands."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from workflows.extension import Extension
from workflows.features.pace.health import Paces, active

if TYPE_CHECKING:
    from workflows.management.workflow.subcommand import Subcommand


class PaceExtension(Extension):
    def figures(self, at: datetime) -> Paces:
        return Paces(active())

    def subcommands(self) -> Mapping[str, Subcommand]:
        from workflows.features.pace import command  # for that command alone

        return command.SUBCOMMANDS

"""What paces and holds bring to commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from workflows.extension import Extension

if TYPE_CHECKING:
    from workflows.management.workflow.subcommand import Subcommand


class PaceExtension(Extension):
    def subcommands(self) -> Mapping[str, Subcommand]:
        from workflows.features.pace import command  # for that command alone

        return command.SUBCOMMANDS

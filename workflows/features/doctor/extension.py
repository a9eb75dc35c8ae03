"""The subcommand of the doctor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from workflows.extension import Extension

if TYPE_CHECKING:
    from workflows.management.workflow.subcommand import Subcommand


class DoctorExtension(Extension):
    commands = (
        "workflows.features.doctor.commands.checkinflight",
        "workflows.features.doctor.commands.doctor",
        "workflows.features.doctor.commands.reconcile",
    )

    def subcommands(self) -> Mapping[str, Subcommand]:
        from workflows.features.doctor import replay_command  # for that command alone

        return replay_command.SUBCOMMANDS

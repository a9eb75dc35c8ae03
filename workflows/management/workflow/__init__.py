"""The subcommands of `manage.py workflow`: one module for each kind."""

from workflows.features.bulk import command as bulk
from workflows.features.doctor import replay_command as replay
from workflows.features.pace import command as pace
from workflows.features.retention import command as erase
from workflows.management.workflow import one
from workflows.management.workflow.subcommand import Subcommand

SUBCOMMANDS: dict[str, Subcommand] = {
    **one.SUBCOMMANDS,
    **bulk.SUBCOMMANDS,
    **pace.SUBCOMMANDS,
    **erase.SUBCOMMANDS,
    **replay.SUBCOMMANDS,
}

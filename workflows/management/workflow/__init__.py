"""The subcommands of `manage.py workflow`: one module for each kind."""

from workflows.management.workflow import bulk, erase, one, pace, replay
from workflows.management.workflow.subcommand import Subcommand

SUBCOMMANDS: dict[str, Subcommand] = {
    **one.SUBCOMMANDS,
    **bulk.SUBCOMMANDS,
    **pace.SUBCOMMANDS,
    **erase.SUBCOMMANDS,
    **replay.SUBCOMMANDS,
}

"""The subcommands of `manage.py workflow`: one module for each kind."""

from workflows.management.workflow import bulk, erase, legal_hold, one, pace, replay
from workflows.management.workflow.subcommand import Subcommand

SUBCOMMANDS: dict[str, Subcommand] = {
    **one.SUBCOMMANDS,
    **bulk.SUBCOMMANDS,
    **pace.SUBCOMMANDS,
    **legal_hold.SUBCOMMANDS,
    **erase.SUBCOMMANDS,
    **replay.SUBCOMMANDS,
}

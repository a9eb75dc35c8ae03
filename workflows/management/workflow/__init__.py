"""The subcommands of `manage.py workflow`: those of one workflow, and those that features bring."""

from workflows.extension import installed
from workflows.management.workflow import one
from workflows.management.workflow.subcommand import Subcommand


def subcommands() -> dict[str, Subcommand]:
    """By name, in the order of `--help`."""
    return one.SUBCOMMANDS | {name: each for of in installed() for name, each in of.subcommands().items()}

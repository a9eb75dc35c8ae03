"""The subcommands of `manage.py workflow`: those for one workflow, and those of features."""

from workflows.extension import installed
from workflows.management.workflow import one
from workflows.management.workflow.subcommand import Subcommand


def subcommands() -> dict[str, Subcommand]:
    """All subcommands by name, in the order of `--help`."""
    return one.SUBCOMMANDS | {name: each for of in installed() for name, each in of.subcommands().items()}

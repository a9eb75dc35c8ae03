"""The `replay` subcommand: runs a stored workflow against this checkout's list."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from workflows.definition import SECRET, WorkflowDefinition, definitions
from workflows.errors import NotAllowed
from workflows.features.doctor import replay
from workflows.features.outages import outside
from workflows.management.workflow.one import find
from workflows.management.workflow.subcommand import DONE, NOT_ALL, Subcommand
from workflows.operations import looking

if TYPE_CHECKING:
    from django.contrib.auth.models import User

HELP = (
    "Run a stored workflow against the list of this checkout, and say step by step what would differ. Nothing is "
    "called, and nothing is kept: calls are answered by the ledger, or refused. It ends with 3 if something differs."
)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("workflow", metavar="ID", help="its number, or its key (a UUID)")
    parser.add_argument(
        "--definition", metavar="PATH", help="dotted, such as onboarding.workflow.ONBOARDING; else WORKFLOWS'"
    )
    parser.add_argument(
        "--reveal", action="store_true", help="show the results that differ in clear; --reason is recorded"
    )


def _replay(user: User, options: dict[str, Any]) -> dict[str, Any]:
    if options["dry_run"]:
        raise NotAllowed("A replay changes nothing anyway: leave out --dry-run.")
    row = find(options["workflow"], user)
    if options["reveal"]:
        looking.require_reveal(user, options["reason"])
    found = replay.replay(row.pk, _definition(options["definition"], row.workflow_type))
    told = found.told()
    if options["reveal"] and found.changed:
        looking.record_reveal(
            row.pk, user=user, fields=[f"replay: {name}" for name in found.changed], reason=options["reason"]
        )
        told["values"] = replay.clear(found.changed, SECRET)
    return {**told, "exit_code": NOT_ALL if found.differs else DONE}


def _definition(path: str | None, workflow_type: str) -> WorkflowDefinition:
    """The definition to replay against. Raises NotAllowed if there is none, or if its module makes a call on import."""
    try:
        with outside.refused():
            found = import_string(path) if path else definitions().get(workflow_type)
    except (ImportError, outside.Refused) as error:
        raise NotAllowed(f"{path} cannot be imported: {type(error).__name__}.") from None
    if not isinstance(found, WorkflowDefinition):
        raise NotAllowed(f"{path or workflow_type} is not a definition: name one with --definition.")
    return found


SUBCOMMANDS = {
    "replay": Subcommand(
        HELP,
        _arguments,
        _replay,
        ["replay 4711", "replay 4711 --definition onboarding.workflow.ONBOARDING --json"],
        changes=False,
    )
}

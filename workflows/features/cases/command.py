"""`manage.py workflow note`."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from workflows.features.cases import operations as cases
from workflows.management.workflow.one import find
from workflows.management.workflow.subcommand import Subcommand

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("workflow", metavar="ID", help="its number, or its key (a UUID)")


def _note(user: User, options: dict[str, Any]) -> dict[str, Any]:
    row = find(options["workflow"], user)
    cases.add_note(row.pk, user=user, reason=options["reason"])
    return {"workflow": row.pk, "key": str(row.key), "done": "The note is added."}


SUBCOMMANDS = {
    "note": Subcommand(
        "Add a note to a workflow, for colleagues: --reason is its text. Only the workflow's page shows it.",
        _arguments,
        _note,
        ['note 4711 --reason "The customer calls back on Monday."'],
    ),
}

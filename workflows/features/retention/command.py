"""`erase ask`: erase by an e-mail address that no workflow may have any more. The console does all else."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from workflows.features.retention import erasing
from workflows.management.workflow.subcommand import Subcommand

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def _add_email(parser: ArgumentParser) -> None:
    parser.add_argument("--email", required=True, help="of the person who asks for it; only its hash is kept")


def _ask(user: User, options: dict[str, Any]) -> dict[str, Any]:
    asked = erasing.ask(user=user, reason=options["reason"], email=options["email"])
    return {"erasure": asked.pk, "workflows": ", ".join(map(str, asked.workflows))}


SUBCOMMANDS = {
    "erase ask": Subcommand(
        "Find all of an e-mail address, and ask that it be erased: another user approves it in the console.",
        _add_email,
        _ask,
        ['erase ask --email ann@example.com --reason "Ticket 812."'],
    ),
}

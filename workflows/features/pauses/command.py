"""`manage.py workflow pause` and `resume`."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from workflows.features.pauses import operations
from workflows.features.pauses.page import PAUSE
from workflows.management.arguments import time_or_in
from workflows.management.workflow.one import find
from workflows.management.workflow.subcommand import Subcommand
from workflows.models import Pause, Workflow

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def _of(parser: ArgumentParser) -> None:
    parser.add_argument("workflow", metavar="ID", help="its number, or its key (a UUID)")


def _add_pause(parser: ArgumentParser) -> None:
    _of(parser)
    parser.add_argument(
        "--until",
        type=time_or_in,
        required=True,
        metavar="TIME",
        help="when it has to be resumed: 4h, 2d, or a time such as 2026-03-02T09:40Z; at most 7 days from now",
    )


def _pause(user: User, options: dict[str, Any]) -> dict[str, Any]:
    row, seen = _found(options, user)
    told = list(PAUSE.consequences(row)) if PAUSE.applies(row) else []
    done = operations.pause(row.pk, user=user, reason=options["reason"], until=options["until"], seen=seen)
    return {"workflow": row.pk, "key": str(row.key), "what_happens": told, "done": done}


def _resume(user: User, options: dict[str, Any]) -> dict[str, Any]:
    row, seen = _found(options, user)
    operations.resume(row.pk, user=user, seen=seen, reason=options["reason"])
    return {"workflow": row.pk, "key": str(row.key), "done": "It is not paused any more."}


def _found(options: dict[str, Any], user: User) -> tuple[Workflow, list[int]]:
    """The workflow, and what identifies its pause: one that changes meanwhile is not overwritten."""
    row = find(options["workflow"], user)
    return row, operations.seen_of(Pause.objects.filter(workflow=row.pk).first())


SUBCOMMANDS = {
    "pause": Subcommand(
        "Pause one workflow until somebody resumes it: nothing wakes it meanwhile, and it does not go on by itself. "
        "After --until it is overdue, and people are told. A second pause gives it another end. It needs a reason.",
        _add_pause,
        _pause,
        [
            'pause 4711 --until 4h --reason "Her insurer calls back." --dry-run',
            'pause 4711 --until 2026-03-02T09:40Z --reason "Her insurer calls back."',
        ],
    ),
    "resume": Subcommand(
        "End the pause of a workflow: a worker takes it up as soon as one is free.",
        _of,
        _resume,
        ['resume 4711 --reason "Her insurer has called."'],
    ),
}

"""hold, release, pace: of a queue or a type."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from workflows import operations
from workflows.errors import NotAllowed
from workflows.health import paces
from workflows.management.workflow.subcommand import Subcommand

if TYPE_CHECKING:
    from django.contrib.auth.models import User

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _duration(text: str) -> timedelta:
    try:
        return timedelta(**{UNITS[text[-1:]]: float(text[:-1])})
    except (KeyError, ValueError, OverflowError):
        raise ArgumentTypeError(f"{text!r} is not a time: give 30m, 2h or 1d") from None


def _per_second(text: str) -> float | None:
    try:
        return None if text == "none" else float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no pace: give a number, or none") from None


def _of(parser: ArgumentParser) -> None:
    parser.add_argument("key", metavar="WHAT", help="queue:NAME, type:NAME or tenant:NAME; of cap also service:NAME")


def _add_hold(parser: ArgumentParser) -> None:
    _of(parser)
    parser.add_argument("--for", dest="lasts", type=_duration, required=True, metavar="TIME", help="30m, 2h or 1d")


def _add_pace(parser: ArgumentParser) -> None:
    _of(parser)
    parser.add_argument("--per-second", type=_per_second, required=True, metavar="N", help="a number, or none")


def _add_cap(parser: ArgumentParser) -> None:
    _of(parser)
    parser.add_argument("--at-once", type=_per_second, required=True, metavar="N", help="a number, or none")


def _tell(user: User, options: dict[str, Any]) -> dict[str, Any]:
    """How it stands."""
    if (row := paces.standing(options["key"])) is None:
        raise NotAllowed(f"There is no {options['key']}.")
    held_until = row.pace.held_until if row.is_held else None
    return {
        "what": row.pk,
        "held_until": held_until and held_until.isoformat(timespec="seconds"),
        "held_by": row.pace.held_by if held_until else "",
        "per_second": row.pace.per_second,
        "at_once": row.pace.at_once,
        "wait_to_begin": row.waiting,
    }


def _hold(user: User, options: dict[str, Any]) -> dict[str, Any]:
    until = timezone.now() + options["lasts"]
    operations.hold_queue(options["key"], user=user, until=until, reason=options["reason"])
    return _tell(user, options)


def _release(user: User, options: dict[str, Any]) -> dict[str, Any]:
    operations.release_queue(options["key"], user=user, reason=options["reason"])
    return _tell(user, options)


def _pace(user: User, options: dict[str, Any]) -> dict[str, Any]:
    operations.set_pace(options["key"], user=user, per_second=options["per_second"], reason=options["reason"])
    return _tell(user, options)


def _cap(user: User, options: dict[str, Any]) -> dict[str, Any]:
    at_once = options["at_once"] and int(options["at_once"])
    operations.set_cap(options["key"], user=user, at_once=at_once, reason=options["reason"])
    return _tell(user, options)


SUBCOMMANDS = {
    "cap": Subcommand("Let no more begin while so many are under way.", _add_cap, _tell, _cap),
    "hold": Subcommand("Let nothing of a queue or type begin for a time.", _add_hold, _tell, _hold),
    "release": Subcommand("End a hold before its time.", _of, _tell, _release),
    "pace": Subcommand("Let so many begin in a second, over all workers.", _add_pace, _tell, _pace),
}

"""The `hold`, `release`, `pace` and `cap` subcommands of a queue, type, tenant or service."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from workflows.errors import NotAllowed
from workflows.features.pace import health, operations
from workflows.management.arguments import duration
from workflows.management.workflow.subcommand import Subcommand

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def _per_second(text: str) -> float | None:
    try:
        return None if text == "none" else float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a pace: give a number, or none") from None


def _at_once(text: str) -> int | None:
    try:
        return None if text == "none" else int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a cap: give a whole number, or none") from None


def _of(parser: ArgumentParser) -> None:
    parser.add_argument("key", metavar="WHAT", help="queue:NAME, type:NAME or tenant:NAME; of cap also service:NAME")


def _add_hold(parser: ArgumentParser) -> None:
    _of(parser)
    parser.add_argument("--for", dest="lasts", type=duration, required=True, metavar="TIME", help="30m, 2h or 1d")


def _add_pace(parser: ArgumentParser) -> None:
    _of(parser)
    parser.add_argument("--per-second", type=_per_second, required=True, metavar="N", help="a number, or none")


def _add_cap(parser: ArgumentParser) -> None:
    _of(parser)
    parser.add_argument("--at-once", type=_at_once, required=True, metavar="N", help="a number, or none")


def _tell(options: dict[str, Any]) -> dict[str, Any]:
    """The state after the change. Raises NotAllowed if the name is unknown."""
    if (row := health.standing(options["key"])) is None:
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
    return _tell(options)


def _change(
    user: User, options: dict[str, Any], *, operation: Callable[..., object], given: tuple[str, ...] = ()
) -> dict[str, Any]:
    operation(options["key"], user=user, reason=options["reason"], **{name: options[name] for name in given})
    return _tell(options)


_release = partial(_change, operation=operations.release_queue)
_pace = partial(_change, operation=operations.set_pace, given=("per_second",))
_cap = partial(_change, operation=operations.set_cap, given=("at_once",))


SUBCOMMANDS = {
    "cap": Subcommand(
        "Let no more begin while so many are under way.",
        _add_cap,
        _cap,
        ["cap tenant:north --at-once 4", "cap service:billing --at-once none"],
    ),
    "hold": Subcommand(
        "Let nothing of a queue or type begin for a time.",
        _add_hold,
        _hold,
        ["hold queue:default --for 30m"],
    ),
    "release": Subcommand("End a hold before its time.", _of, _release, ["release queue:default"]),
    "pace": Subcommand(
        "Let so many begin in a second, over all workers.",
        _add_pace,
        _pace,
        ["pace type:onboarding --per-second 5", "pace type:onboarding --per-second none"],
    ),
}

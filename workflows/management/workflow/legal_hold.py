"""legal-hold place, extend, lift, list: what may not be deleted, whatever its age."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from workflows.management.arguments import time
from workflows.management.workflow.subcommand import Subcommand, number
from workflows.models import Hold
from workflows.models.clock import ClockTimestamp
from workflows.operations.guards import PLACE_HOLD, VIEW, require
from workflows.retention import holds

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def _add_place(parser: ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--workflow", metavar="ID", help="its number")
    what.add_argument("--email", help="of all that have this e-mail address; only its hash is kept")
    _add_until(parser)


def _add_until(parser: ArgumentParser) -> None:
    parser.add_argument("--until", type=time, required=True, metavar="TIME", help="a date, say 2031-12-31")


def _add_extend(parser: ArgumentParser) -> None:
    _add_lift(parser)
    _add_until(parser)


def _add_lift(parser: ArgumentParser) -> None:
    parser.add_argument("hold", metavar="ID", help="the hold's number")


def _place(user: User, options: dict[str, Any]) -> dict[str, Any]:
    workflow = number(options["workflow"], "workflow") if options["workflow"] else None
    said = {"reason": options["reason"], "until": options["until"]}
    placed = holds.place(user=user, workflow_id=workflow, email=options["email"] or "", **said)
    return {"holds": [_told(each) for each in placed]}


def _extend(user: User, options: dict[str, Any]) -> dict[str, Any]:
    hold_id = number(options["hold"], "hold")
    holds.extend(hold_id, user=user, reason=options["reason"], until=options["until"])
    return {"extended": hold_id}


def _lift(user: User, options: dict[str, Any]) -> dict[str, Any]:
    hold_id = number(options["hold"], "hold")
    holds.lift(hold_id, user=user, reason=options["reason"])
    return {"lifted": hold_id}


def _list(user: User, options: dict[str, Any]) -> dict[str, Any]:
    require(user, PLACE_HOLD, VIEW)
    under_way = Hold.objects.filter(until__gt=ClockTimestamp()).order_by("id")
    return {"holds": [_told(each) for each in under_way]}


def _told(hold: Hold) -> dict[str, Any]:
    what = f"workflow {hold.workflow_id}" if hold.workflow_id else "an e-mail address"
    until = hold.until.isoformat(timespec="seconds")
    return {"hold": hold.pk, "on": what, "until": until, "placed_by": hold.placed_by, "reason": hold.reason}


SUBCOMMANDS = {
    "legal-hold place": Subcommand(
        "Let nothing of a workflow, or of an e-mail address, be deleted until a time.",
        _add_place,
        _place,
        [
            "legal-hold place --workflow 4711 --until 2031-12-31",
            "legal-hold place --email ann@example.com --until 2031-12-31",
        ],
    ),
    "legal-hold extend": Subcommand(
        "Place another hold on the same, until a later time.",
        _add_extend,
        _extend,
        ["legal-hold extend 3 --until 2035-12-31"],
    ),
    "legal-hold lift": Subcommand("End a legal hold before its time.", _add_lift, _lift, ["legal-hold lift 3"]),
    "legal-hold list": Subcommand("The legal holds that there are.", lambda parser: None, _list, changes=False),
}

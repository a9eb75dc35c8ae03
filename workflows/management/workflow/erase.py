"""erase ask, approve, refuse, list: all of a person, by an e-mail address, because that person asks for it."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from workflows.management.workflow.subcommand import Subcommand, number
from workflows.models import Erasure
from workflows.operations.guards import ERASE, require
from workflows.retention import erasing

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def _add_ask(parser: ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--email", default="", help="of the person who asks for it; only its hash is kept")
    what.add_argument("--workflow", metavar="ID", help="one of theirs: it, and all that have its e-mail address")
    what.add_argument("--business-key", default="", metavar="KEY", help="of one of theirs, as its sender calls it")


def _of(parser: ArgumentParser) -> None:
    parser.add_argument("erasure", metavar="ID", help="the erasure's number")


def _ask(user: User, options: dict[str, Any]) -> dict[str, Any]:
    workflow = number(options["workflow"], "workflow") if options["workflow"] else None
    what = {"email": options["email"], "workflow_id": workflow, "business_key": options["business_key"]}
    return _told(erasing.ask(user=user, reason=options["reason"], **what))


def _approve(user: User, options: dict[str, Any]) -> dict[str, Any]:
    return _told(erasing.approve(number(options["erasure"], "erasure"), user=user))


def _refuse(user: User, options: dict[str, Any]) -> dict[str, Any]:
    erasing.refuse(erasure_id := number(options["erasure"], "erasure"), user=user)
    return {"refused": erasure_id}


def _list(user: User, options: dict[str, Any]) -> dict[str, Any]:
    require(user, ERASE)
    newest = Erasure.objects.select_related("asked_by", "decided_by").order_by("-id")[:100]
    return {"erasures": [_told(each) for each in newest]}


def _told(erasure: Erasure) -> dict[str, Any]:
    """The receipt: it names nobody but the two users. With the key, its hash tells whether it is of an address."""
    decided_at = erasure.decided_at
    return {
        "erasure": erasure.pk,
        "state": erasure.get_state_display(),
        "of": bytes(erasure.hash).hex(),
        "workflows": ", ".join(map(str, erasure.workflows)),
        "reason": erasure.reason,
        "asked_by": erasure.asked_by.get_username(),
        "decided_by": erasure.decided_by.get_username() if erasure.decided_by else "",
        "decided_at": decided_at.isoformat(timespec="seconds") if decided_at else None,
    }


SUBCOMMANDS = {
    "erase ask": Subcommand(
        "Find all of an e-mail address, and ask that it be erased.",
        _add_ask,
        _ask,
        [
            'erase ask --email ann@example.com --reason "Ticket 812."',
            'erase ask --workflow 4711 --reason "Ticket 812."',
        ],
    ),
    "erase approve": Subcommand(
        "Erase what another user has asked for; the receipt is printed.", _of, _approve, ["erase approve 3 --json"]
    ),
    "erase refuse": Subcommand("Refuse it, or withdraw your own.", _of, _refuse, ["erase refuse 3"]),
    "erase list": Subcommand("The newest erasures.", lambda parser: None, _list, changes=False),
}

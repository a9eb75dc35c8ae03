"""WHAT A BULK OPERATION WOULD DO: how many rows it can change, why not the others, and which money moves."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from workflows.health.selecting import without_ids
from workflows.models import BulkOperation
from workflows.operations.bulk_verbs import verbs

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class Preview(NamedTuple):
    """How many rows the operation `can` change now, how many not for each reason, the money that moves, and a warning.

    Each item is checked again when its turn comes.
    """

    can: int
    cannot: list[tuple[int, str]]
    money: str = ""
    warning: str = ""


def preview(bulk: BulkOperation, user: User, items: Any = None) -> Preview:
    verb = verbs()[bulk.verb]
    if verb.counts:
        return _counted(bulk, verb.counts(bulk))
    rows = verb.model._default_manager.filter(pk__in=(bulk.items if items is None else items).values("row"))
    applies = set(rows.filter(verb.applies).values_list("pk", flat=True))
    refused = [(ids, why) for ids, why in verb.refused(applies, user) if ids]
    can = applies.difference(*(ids for ids, _ in refused))
    others = Counter(verb.why_not(without_ids(rows, applies)) if len(applies) < bulk.selected else ())
    cannot = [(number, why) for why, number in sorted(others.items())]
    return Preview(len(can), cannot + [(len(ids), why) for ids, why in refused], verb.money(can), verb.warns(can))


def can_any(bulk: BulkOperation, user: User, first: int = 100) -> bool:
    """Whether it can change a row now. Looks at all of them only where it cannot change the first."""
    return any(preview(bulk, user, items).can for items in (bulk.items.order_by("row")[:first], bulk.items.all()))


def _counted(bulk: BulkOperation, counted: dict[str, int]) -> Preview:
    can, gone = counted.pop("", 0), bulk.selected - sum(counted.values())
    cannot = [(number, why) for why, number in sorted(counted.items())]
    return Preview(can, [*cannot, *([(gone - can, "deleted since")] if gone > can else [])])

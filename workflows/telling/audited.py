"""AUDITED: a feature's table in the audit (`Extension.audited`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import QuerySet

Rows = QuerySet[Any, Any]

LOOKED, DID = "looked", "did"


@dataclass(frozen=True, slots=True)
class Source:
    """A table of the audit, with an index on its time and id. `rank` is part of links, and never changes.

    `at` and `workflow` are its columns. `of_person` filters by a name. `told` says what was done, and details.
    """

    rank: int
    sort: str
    rows: Callable[[], Rows]
    at: str = "at"
    workflow: str = ""
    of_person: Callable[[Rows, str], Rows] = field(default=lambda rows, name: rows.filter(actor=name))
    told: Callable[[Any], tuple[str, str]] = field(default=lambda row: ("", ""))


def by_people(rows: Rows) -> Rows:
    return rows.exclude(actor="")

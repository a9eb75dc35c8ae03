"""BOUNDED: counts that stop at COUNT_LIMIT, so that they cost the same however many rows there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

# Nobody needs the difference between 10,000 and 20,000, and the database need not count them.
COUNT_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Link:
    """A page of the console: the list of `model` with `filters`, or the row `pk`."""

    model: str
    pk: str = ""
    filters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Count:
    """What was counted, one above COUNT_LIMIT when there are more; and the list of the rows that were."""

    number: int
    link: Link

    def __str__(self) -> str:
        return text(self.number)


def count(rows: QuerySet[Any]) -> int:
    """How many rows there are: one above COUNT_LIMIT if there are more."""
    return rows[: COUNT_LIMIT + 1].count()


def text(number: int) -> str:
    """A bounded count as people read it: `10,000+`."""
    return f"{COUNT_LIMIT:,}+" if number > COUNT_LIMIT else f"{number:,}"

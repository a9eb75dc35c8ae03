"""BOUNDED: counts that stop at a limit, so that they cost the same however many rows there are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

# Nobody needs the difference between 10,000 and 20,000, and the database need not count them.
COUNT_LIMIT = 10_000
_lower: ContextVar[int] = ContextVar("lower")


def limit() -> int:
    """The limit of counts: COUNT_LIMIT, or a lower number within `counting_to`."""
    return min(COUNT_LIMIT, _lower.get(COUNT_LIMIT))


@contextmanager
def counting_to(number: int) -> Iterator[None]:
    """Stop counts within the block at this number."""
    token = _lower.set(number)
    try:
        yield
    finally:
        _lower.reset(token)


@dataclass(frozen=True, slots=True)
class Link:
    """A page of the console: the list of `model` with `filters`, the row `pk`, or in its place the `page` of this name.

    Whoever may see the model may follow it.
    """

    model: str
    pk: str = ""
    filters: tuple[tuple[str, str], ...] = ()
    page: str = ""


@dataclass(frozen=True, slots=True)
class Count:
    """A number, one above the limit if there are more rows, and the list of these rows."""

    number: int
    link: Link

    def __str__(self) -> str:
        return text(self.number)


def count(rows: QuerySet[Any]) -> int:
    """How many rows there are: one above the limit if there are more."""
    return rows[: limit() + 1].count()


def text(number: int) -> str:
    """A bounded count as people read it: `10,000+`."""
    return f"{COUNT_LIMIT:,}+" if number > COUNT_LIMIT else f"{number:,}"

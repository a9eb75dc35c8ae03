"""BOUNDED: counts that stop at a limit, so that they cost the same however many rows there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.db.models import QuerySet

from workflows.postgres import often

# Nobody needs the difference between 10,000 and 20,000, and the database need not count them.
COUNT_LIMIT = 10_000
# Of what waits for people: nobody gets through more in a day, and each is looked up with its workflow.
PEOPLE_LIMIT = 1_000
_lower: ContextVar[int] = ContextVar("lower")


def people_limit() -> int:
    return min(PEOPLE_LIMIT, limit())


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
    most: int | None = None  # where it stopped, if not at COUNT_LIMIT

    def __str__(self) -> str:
        return text(self.number, self.most)


def count(rows: QuerySet[Any]) -> int:
    """How many rows there are: one above the limit if there are more."""
    return rows[: limit() + 1].count()


def count_of(rows: Callable[[], QuerySet[Any]]) -> int:
    """As `count`, for what is always the same query."""
    return counts_of(rows, most=limit())[0]


def counts_of(*of: Callable[[], QuerySet[Any]], most: int) -> list[int]:
    """How many of each there are, up to one more than `most`, in one statement.

    For what are always the same queries: Django builds them once, which takes longer than to run them.
    """
    return [*often.fetch_row(*_counting(of, most + 1))]


@cache
def _counting(of: tuple[Callable[[], QuerySet[Any]], ...], most: int) -> tuple[str, tuple[Any, ...]]:
    compiled = [rows().order_by().values("pk")[:most].query.sql_with_params() for rows in of]
    columns = ", ".join(f"(SELECT count(*) FROM ({sql}) one)" for sql, _ in compiled)  # noqa: S608 (the ORM's)
    return f"SELECT {columns}", tuple(each for _, given in compiled for each in given)


def text(number: int, most: int | None = None) -> str:
    """A bounded count as people read it: `10,000+`. `most`: where it stopped, if not at COUNT_LIMIT."""
    most = most or COUNT_LIMIT
    return f"{most:,}+" if number > most else f"{number:,}"

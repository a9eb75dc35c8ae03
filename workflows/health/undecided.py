"""UNDECIDED: rows that are no tasks, and wait for a person to go on or for a second person to decide."""

from __future__ import annotations

from typing import NamedTuple

from workflows.extension import installed
from workflows.health import bounded
from workflows.health.bounded import Count, Link
from workflows.postgres.often import fetch_row


class Undecided(NamedTuple):
    """Rows of a feature that only a person moves on. The lowest `place` comes first.

    `rows` is the SQL after FROM; an index has these rows. `one` and `many` end the sentences "1 ..." and "2 ...".
    """

    place: int
    rows: str
    link: Link
    one: str
    many: str


def waiting_for_a_second_person(
    place: int, table: str, link: Link, what: str, waits: str = "for a second person"
) -> Undecided:
    """Describe the requests in `table` that are undecided for at least a day. `waits`: for what, if for more."""
    return Undecided(
        place,
        f"{table} WHERE state = 'asked' AND asked_at <= statement_timestamp() - interval '1 day'",
        link,
        f"{what} has waited {waits} for a day",
        f"{what}s have waited {waits} for a day",
    )


def read() -> list[tuple[Count, str]]:
    """The number of rows of each kind that has any, and the rest of its sentence. One statement for all."""
    kinds = sorted((each for extension in installed() for each in extension.undecided), key=lambda each: each.place)
    columns = ", ".join(f"(SELECT count(*) FROM (SELECT FROM {each.rows} LIMIT %(limit)s) each)" for each in kinds)  # noqa: S608 (ours)
    numbers = fetch_row(f"SELECT {columns}", {"limit": bounded.limit() + 1})
    return [
        (Count(number, each.link), each.one if number == 1 else each.many)
        for number, each in zip(numbers, kinds, strict=True)
        if number
    ]

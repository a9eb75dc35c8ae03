"""UNDECIDED: what is no task, and stands still until a person goes on with it or a second person decides."""

from __future__ import annotations

from workflows.health import bounded
from workflows.health.bounded import Count, Link
from workflows.postgres.statements import fetch_row

# A second person is given a day.
_ASKED = "state = 'asked' AND asked_at <= statement_timestamp() - interval '1 day'"
_WAITED = ("has waited for a second person for a day", "have waited for a second person for a day")
# What, the table and condition, where to see it, and what is said of one and of many.
_KINDS = (
    ("bulk operation", "bulkoperation", "state = 'paused'", Link("bulkoperation"), ("is paused", "are paused")),
    ("bulk operation", "bulkoperation", _ASKED, Link("bulkoperation"), _WAITED),
    ("erasure", "erasure", _ASKED, Link("erasure"), _WAITED),
    ("correction", "correction", _ASKED, Link("workflow", filters=(("preset", "attention"),)), _WAITED),
)


def read() -> list[tuple[Count, str]]:
    """How many there are of each kind of which there are any, and the rest of the sentence."""
    columns = ", ".join(
        f"(SELECT count(*) FROM (SELECT FROM workflows_{table} WHERE {condition} LIMIT %(limit)s) each)"  # noqa: S608
        for _, table, condition, _, _ in _KINDS
    )
    numbers = fetch_row(f"SELECT {columns}", {"limit": bounded.limit() + 1})
    return [
        (Count(number, link), f"{what} {one}" if number == 1 else f"{what}s {many}")
        for number, (what, _, _, link, (one, many)) in zip(numbers, _KINDS, strict=True)
        if number
    ]

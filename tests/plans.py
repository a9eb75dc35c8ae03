"""What a statement costs: the server explains it, just before it is run, with its parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.db import connection


class Plan(NamedTuple):
    """One run of a statement: the pages of 8 kB that it read, in memory or not, and the indexes.

    `of_accounts` are those of the tables of users and groups: the tests before leave many behind.
    """

    buffers: int
    indexes: list[str]
    sql: str
    parameters: Any = None
    of_accounts: int = 0


def is_query(sql: str) -> bool:
    return sql.lstrip(" \n(").upper().startswith(("SELECT", "WITH"))


@contextmanager
def explained(plans: list[Plan], which: Callable[[str], bool] = is_query) -> Iterator[None]:
    """Have each such statement of Django's cursors explained. Those of `postgres.statements` pass this by."""

    def explain(execute: Any, sql: str, parameters: Sequence[Any], *rest: Any) -> Any:
        if which(sql):
            with connection.cursor() as cursor:
                # Past the wrappers, and with the same parameters.
                cursor.cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", parameters)
                ((found,),) = cursor.cursor.fetchall()
            plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
            plans.append(Plan(_pages(plan), list(_indexes(plan)), sql, parameters, _pages_of_accounts(plan)))
        return execute(sql, parameters, *rest)

    with connection.execute_wrapper(explain):
        yield


def _pages(plan: dict[str, Any]) -> int:
    """Those of its parts among them."""
    read: int = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return read


def _pages_of_accounts(plan: dict[str, Any]) -> int:
    parts = plan.get("Plans", [])
    own = _pages(plan) - sum(map(_pages, parts)) if plan.get("Relation Name", "").startswith("auth_") else 0
    return own + sum(map(_pages_of_accounts, parts))


def _indexes(plan: dict[str, Any]) -> Iterator[str]:
    """The indexes that were read; of a part that was not run, none."""
    if "Index Name" in plan and plan["Actual Loops"]:
        yield plan["Index Name"]
    for part in plan.get("Plans", []):
        yield from _indexes(part)

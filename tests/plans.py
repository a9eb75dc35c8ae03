"""What a statement costs: the server explains it, just before it is run, with its parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.db import connection


class Plan(NamedTuple):
    """One run of a statement: the pages of 8 kB that it read, in memory or not, and the indexes."""

    buffers: int
    indexes: list[str]
    sql: str
    parameters: Any = None


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
            plans.append(
                Plan(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], list(_indexes(plan)), sql, parameters)
            )
        return execute(sql, parameters, *rest)

    with connection.execute_wrapper(explain):
        yield


def _indexes(plan: dict[str, Any]) -> Iterator[str]:
    """The indexes that were read; of a part that was not run, none."""
    if "Index Name" in plan and plan["Actual Loops"]:
        yield plan["Index Name"]
    for part in plan.get("Plans", []):
        yield from _indexes(part)

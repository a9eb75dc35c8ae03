"""What a look at the queue costs: the very statement that the worker runs, explained by the server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.db import connection

from tests.engine import worker


class Look(NamedTuple):
    """One run of the claim's statement."""

    buffers: int
    indexes: list[str]
    from_watermark: bool


@contextmanager
def explained(looks: list[Look]) -> Iterator[None]:
    """Have the server explain each claim just before it is made, in the claim's own transaction."""

    def explain(execute: Any, sql: str, parameters: Sequence[Any], *rest: Any) -> Any:
        if "SKIP LOCKED" not in sql:
            return execute(sql, parameters, *rest)
        with connection.cursor() as cursor:
            # Past the wrappers, and with the same parameters.
            cursor.cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", parameters)
            ((found,),) = cursor.cursor.fetchall()
        plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
        buffers = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        looks.append(Look(buffers, list(_indexes(plan)), "(invisible_until, id) >=" in sql))
        return execute(sql, parameters, *rest)

    with connection.execute_wrapper(explain):
        yield


def _indexes(plan: dict[str, Any]) -> Iterator[str]:
    """The indexes that were read; of a part that was not run, none."""
    if "Index Name" in plan and plan["Actual Loops"]:
        yield plan["Index Name"]
    for part in plan.get("Plans", []):
        yield from _indexes(part)


def look_once() -> Look:
    """The claim of a worker that has just started: from the oldest due row on."""
    looks: list[Look] = []
    with explained(looks):
        assert worker().process_next()
    return looks[0]

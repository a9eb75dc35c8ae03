"""STATES: the number of workflows in each state, up to a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import QuerySet

from workflows.health import bounded
from workflows.health.selecting import with_ids
from workflows.models import State, Workflow


def in_states(states: Collection[State], *, by_type: bool) -> dict[State, Counter[str]]:
    """The number of rows in each of these states, by type, or all under an empty name. Stops at a limit."""
    limit = bounded.limit()
    parts = list(_compiled(frozenset(states) - {State.QUEUED}, limit))
    if State.QUEUED in states:
        parts.append((State.QUEUED, *_queued(limit)))
    column = "workflow_type" if by_type else "''"
    counting = " UNION ALL ".join(
        f"SELECT '{state}', {column}, count(*) FROM ({sql}) of_state GROUP BY 2"  # noqa: S608 (the ORM's)
        for state, sql, _ in parts
    )
    found: dict[State, Counter[str]] = {state: Counter() for state in State if state in states}
    with connection.cursor() as cursor:
        cursor.execute(counting, [each for _, _, given in parts for each in given])
        for state, workflow_type, number in cursor.fetchall():
            found[State(state)][workflow_type] = number
    return found


def of(ids: Collection[int]) -> Counter[State]:
    """How many of these workflows are in each state."""
    rows = with_ids(Workflow.objects.with_state(), ids)
    return Counter(map(State, rows.order_by().values_list("state", flat=True)))


@cache
def _compiled(states: frozenset[State], limit: int) -> list[tuple[State, str, tuple[Any, ...]]]:
    """The SQL of each state's first rows, cached: Django takes longer to compile it than to run it."""
    return [(state, *_sql(Workflow.objects.in_state(state), limit)) for state in sorted(states)]


def _queued(limit: int) -> tuple[str, tuple[Any, ...]]:
    """The SQL of the queued rows, which are two sets."""
    compiled = []
    for rows in Workflow.objects.queued(limit):
        with suppress(EmptyResultSet):
            compiled.append(_sql(rows, limit))
    together = " UNION ALL ".join(f"(SELECT * FROM ({sql}) one)" for sql, _ in compiled)  # noqa: S608 (the ORM's)
    return f"{together} LIMIT {limit + 1}", tuple(each for _, given in compiled for each in given)


def _sql(rows: QuerySet[Workflow], limit: int) -> tuple[str, tuple[Any, ...]]:
    return rows.order_by().values("workflow_type")[: limit + 1].query.sql_with_params()

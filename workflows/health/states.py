"""STATES: the number of workflows in each state, up to a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import cache
from typing import Any

from django.db.models import QuerySet

from workflows.health import bounded
from workflows.health.selecting import with_ids
from workflows.models import State, Workflow
from workflows.postgres import often


def in_states(states: Collection[State], *, by_type: bool) -> dict[State, Counter[str]]:
    """The number of rows in each of these states, by type, or all under an empty name. Stops at a limit."""
    found: dict[State, Counter[str]] = {state: Counter() for state in State if state in states}
    for state, workflow_type, number in often.fetch_all(*_counting(frozenset(states), bounded.limit(), by_type)):
        found[State(state)][workflow_type] = number
    return found


def of(ids: Collection[int]) -> Counter[State]:
    """How many of these workflows are in each state."""
    rows = with_ids(Workflow.objects.with_state(), ids)
    return Counter(map(State, rows.order_by().values_list("state", flat=True)))


@cache
def _counting(states: frozenset[State], limit: int, by_type: bool) -> tuple[str, tuple[Any, ...]]:
    """The statement, cached: Django takes longer to compile it than to run it."""
    column, parts, given = "workflow_type" if by_type else "''", [], list[Any]()
    for state in sorted(states):
        sql, parameters = _queued(limit) if state == State.QUEUED else _sql(Workflow.objects.in_state(state), limit)
        parts.append(f"SELECT '{state}', {column}, count(*) FROM ({sql}) of_state GROUP BY 2")  # noqa: S608 (the ORM's)
        given.extend(parameters)
    return " UNION ALL ".join(parts), tuple(given)


def _queued(limit: int) -> tuple[str, tuple[Any, ...]]:
    """The SQL of the queued rows, which are two sets."""
    compiled = [_sql(rows, limit) for rows in Workflow.objects.queued_at_once(limit)]
    together = " UNION ALL ".join(f"(SELECT * FROM ({sql}) one)" for sql, _ in compiled)  # noqa: S608 (the ORM's)
    return f"{together} LIMIT {limit + 1}", tuple(each for _, given in compiled for each in given)


def _sql(rows: QuerySet[Workflow], limit: int) -> tuple[str, tuple[Any, ...]]:
    return rows.order_by().values("workflow_type")[: limit + 1].query.sql_with_params()

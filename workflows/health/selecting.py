"""SELECTING the workflows of a list in the console, or of a bulk operation.

If no single index has the rows in order, a choice has several *arms*: sets of rows that together are the chosen ones.
They may overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import QuerySet
from django.db.models.expressions import RawSQL

from workflows.health.bounded import COUNT_LIMIT
from workflows.models import State
from workflows.state import parking

Rows = QuerySet[Any, Any]


def arms_in_state(rows: Any, state: str) -> list[Rows]:
    """The rows in a state, as arms."""
    if state == State.QUEUED:
        return list(rows.queued(COUNT_LIMIT))
    if state == State.PARKED:  # an index has those of each service in order
        return [rows.in_state(State.PARKED).filter(parked_on=name) for name in parking.names()] or [rows.none()]
    return [rows.in_state(state)]


def ids_of(arms: Sequence[Rows]) -> Rows:
    """The primary keys of these rows, at most the limit and one."""
    found = together([arm.order_by().values("pk")[: COUNT_LIMIT + 1] for arm in arms])
    return found[: COUNT_LIMIT + 1] if len(arms) > 1 else found


def with_ids(rows: Rows, ids: Iterable[int]) -> Rows:
    """Those of the rows. Passes one array: PostgreSQL would parse each of ten thousand parameters."""
    return rows.filter(pk__in=_array(ids))


def without_ids(rows: Rows, ids: Iterable[int]) -> Rows:
    """The rows but those, as `with_ids`."""
    return rows.exclude(pk__in=_array(ids))


def _array(ids: Iterable[int]) -> RawSQL:
    return RawSQL("SELECT unnest(%s::bigint[])", [list(ids)])


def together(parts: Sequence[Rows]) -> Rows:
    first, *others = parts
    return first.union(*others) if others else first

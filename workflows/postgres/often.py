"""OFTEN: statements that are asked again every few seconds, as those of `/metrics`: the session keeps their plans.

Planning such a statement takes longer than running it, because a table has an index for each question. As
`workflows.postgres.statements`, but a plan is kept for a minute. Parameters become constants of the plan, so pass only
what is nearly always the same: names of types and limits, never a time or an id.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from time import monotonic
from typing import Any, TypeVar

import psycopg
from django.db import connection
from django.db.models import Model, QuerySet
from django.db.models.base import ModelState
from psycopg.pq import TransactionStatus

from workflows.postgres import statements
from workflows.postgres.django_connection import djangos_errors
from workflows.postgres.round_trips import SLOW
from workflows.postgres.statements import Parameters
from workflows.postgres.wire import Command, Row, wire_of

Of = TypeVar("Of", bound=Model)

# Statements with their constants, by the text of these: psycopg needs 100 calls to write one. So many are kept.
_texts: dict[tuple[str, str], str] = {}
_MOST_TEXTS = 500


def fetch_all(sql: str, parameters: Parameters = ()) -> list[Row]:
    """Run one statement; return its rows."""
    connection.ensure_connection()
    raw: Any = connection.connection
    # A pooler may lend another backend, without the plans. And a transaction of Django's begins with its own statement.
    is_pooled = getattr(raw, "onramp_backend", None) is None
    if is_pooled or (not raw.autocommit and raw.info.transaction_status == TransactionStatus.IDLE):
        return statements.fetch_all(sql, parameters)
    with djangos_errors(connection):
        if parameters:
            sql = _with_constants(raw, sql, parameters)
        wire, began = wire_of(raw), monotonic()
        wire.before_others()
        (rows,) = wire.exchange([Command(sql, ())])
        if monotonic() > began + SLOW:  # the plan may be of a table that has grown since
            wire.prepare_anew()
        return rows


def fetch_row(sql: str, parameters: Parameters = ()) -> Row:
    """Run one statement that always returns one row; return the row."""
    (row,) = fetch_all(sql, parameters)
    return row


def instances(rows: Callable[[], QuerySet[Of]]) -> list[Of]:
    """The rows of what is always the same query, with its annotations. What Django converts, as JSON, is deferred.

    Django builds the query once, which takes longer than to run it. `rows` is a function that lives on.
    """
    model, names, sql, parameters = _built(rows)
    found: list[Of] = []
    for row in fetch_all(sql, parameters):
        instance: Of = model.__new__(model)
        vars(instance).update(zip(names, row, strict=True))
        instance._state = ModelState()
        instance._state.adding, instance._state.db = False, connection.alias
        found.append(instance)
    return found


@cache
def _built(rows: Callable[[], QuerySet[Any]]) -> tuple[Any, list[str], str, tuple[Any, ...]]:
    query = rows()
    fields = [each.attname for each in query.model._meta.concrete_fields if not hasattr(each, "from_db_value")]
    names = [*fields, *query.query.annotations]
    sql, parameters = query.values_list(*names).query.sql_with_params()
    return query.model, names, sql, parameters


def _with_constants(raw: Any, sql: str, parameters: Parameters) -> str:
    key = (sql, repr(parameters))
    if (text := _texts.get(key)) is None:
        if len(_texts) >= _MOST_TEXTS:
            _texts.clear()  # perhaps while another thread is here
        text = _texts[key] = psycopg.ClientCursor(raw).mogrify(sql, parameters).replace("%", "%%")
    return text

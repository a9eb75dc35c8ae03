"""Statements of the engine. The server binds their parameters, so these are not in the text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
from django.db import connection
from django.db.models import Func

from workflows.postgres.django_connection import djangos_errors

# By position (`%s`), or by name (`%(name)s`).
Parameters = Sequence[Any] | Mapping[str, Any]


def execute(sql: str, parameters: Parameters = ()) -> int:
    """Run one statement of the engine; return how many rows it changed."""
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return int(cursor.rowcount)


def fetch_all(sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
    """Run one statement of the engine; return its rows."""
    connection.ensure_connection()
    with djangos_errors(connection), psycopg.Cursor(connection.connection) as cursor:
        return cursor.execute(sql, parameters).fetchall()


def fetch_one(sql: str, parameters: Parameters = ()) -> tuple[Any, ...] | None:
    """Run one statement of the engine; return its first row, or None."""
    return next(iter(fetch_all(sql, parameters)), None)


def fetch_row(sql: str, parameters: Parameters = ()) -> tuple[Any, ...]:
    """Run one statement of the engine that always returns one row, such as a count; return the row."""
    (row,) = fetch_all(sql, parameters)
    return row


def literals(values: Iterable[Any]) -> str:
    """SQL for a list of constants, for use after IN."""
    return f"({', '.join(map(literal, values))})"


def literal(value: Any) -> str:
    """SQL for a constant of the engine: None, a number, a word, an empty array or object, the present time."""
    match value:
        case None:
            return "NULL"
        case bool() | int():
            return str(value)
        case str():
            return f"'{value}'"
        case Func():
            return f"{value.function}()"
    return "'{}'"

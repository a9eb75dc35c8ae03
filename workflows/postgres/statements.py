"""Statements of the engine, with their parameters beside them and not in their text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection
from django.db.backends.postgresql.base import ServerBindingCursor


@contextmanager
def parameters_beside() -> Iterator[None]:
    """Send parameters beside their statements, not written into them, as Django's cursor does.

    pg_stat_activity and the server's log show a statement's text, and what is in it may be a patient's data.
    """
    connection.ensure_connection()
    raw: Any = connection.connection
    usual, raw.cursor_factory = raw.cursor_factory, ServerBindingCursor
    try:
        yield
    finally:
        raw.cursor_factory = usual


def execute(sql: str, parameters: Sequence[Any]) -> int:
    """Run one statement of the engine with its parameters beside it; how many rows it has changed."""
    with parameters_beside(), connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return int(cursor.rowcount)


def fetch_one(sql: str, parameters: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Run one statement with its parameters beside it; return its row, if there is one."""
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        return cursor.execute(sql, parameters).fetchone()

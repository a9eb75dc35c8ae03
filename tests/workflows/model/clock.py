"""Time that passes at once: all that the database has written moves into the past."""

from __future__ import annotations

from datetime import timedelta

from django.db import connection

from tests.postgres import without_triggers

_TIMES = """
    SELECT table_name, string_agg(format('%1$I = %1$I - %%(by)s', column_name), ', ')
      FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
     WHERE table_schema = 'public' AND table_type = 'BASE TABLE' AND data_type = 'timestamp with time zone'
       AND table_name LIKE 'workflows%' AND table_name <> 'workflows_rollup'
     GROUP BY table_name"""


def let_pass(by: timedelta) -> None:
    """Let so much time pass, for the engine and for people."""
    with without_triggers(), connection.cursor() as cursor:
        cursor.execute(_TIMES)
        for table, times in cursor.fetchall():
            cursor.execute(f"UPDATE {table} SET {times}", {"by": by})

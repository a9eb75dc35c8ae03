"""What the migrations of this app leave in the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from tests import engine


def columns() -> set[str]:
    """Those that its migrations have added."""
    return _names("SELECT column_name FROM information_schema.columns WHERE column_name LIKE 'ahead%'")


def applied() -> set[str]:
    return _names("SELECT name FROM django_migrations WHERE app = 'migrating'")


def valid_indexes() -> set[str]:
    return _names(
        """SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
            WHERE relname LIKE 'ahead%' AND indisvalid"""
    )


@contextmanager
def taken_back() -> Iterator[None]:
    """At the end the database is as it was before its migrations."""
    try:
        yield
    finally:
        connections.close_all()
        with engine.another_connection() as other:
            other.execute("DROP INDEX IF EXISTS ahead_index")
            other.execute("ALTER TABLE workflows_workflow DROP COLUMN IF EXISTS ahead")
            other.execute("DROP TABLE IF EXISTS migrating_thing")
            other.execute("DELETE FROM django_migrations WHERE app = 'migrating'")


def _names(sql: str) -> set[str]:
    with engine.another_connection() as other:
        return {str(name) for (name,) in other.execute(sql).fetchall()}

"""Whether the database has the tables of this release."""

from __future__ import annotations

from functools import cache

from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder


def missing_migrations() -> frozenset[tuple[str, str]]:
    """The migrations of this release, by app and name, that the database lacks."""
    recorder = MigrationRecorder(connection)
    applied = set(recorder.migration_qs.values_list("app", "name")) if recorder.has_table() else set()
    return _migrations() - applied


@cache
def _migrations() -> frozenset[tuple[str, str]]:
    """All migrations in the files of this release, which do not change while it runs."""
    return frozenset(MigrationLoader(None).graph.nodes)

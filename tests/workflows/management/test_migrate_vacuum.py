"""`manage.py migrate` while PostgreSQL vacuums the table that it changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from tests import engine
from tests.engine import another_connection, submit
from tests.migrating.traces import columns, taken_back
from tests.workflows.management.test_migrate import Migrating

pytestmark = [*engine.ENGINE, pytest.mark.slow]

# As it is in a large table: it goes on for minutes.
SLOW = "autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1"
VACUUMING = "SELECT FROM pg_stat_progress_vacuum WHERE datname = current_database()"


@pytest.fixture(autouse=True)
def migrations(settings: Settings) -> Iterator[None]:
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "tests.migrating"]
    with taken_back():
        yield


def _comes(other: Any) -> bool:
    """Whether the server comes to vacuum this database: it goes from one to the next, and others are tested, too."""
    give_up_at = monotonic() + 40
    while monotonic() < give_up_at:
        if other.execute(VACUUMING).fetchall():
            return True
        sleep(0.05)
    return False


@contextmanager
def vacuumed_by_the_server() -> Iterator[None]:
    """The server has come to vacuum the workflows by itself, and takes long."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        if cursor.fetchone() != (True,):
            pytest.skip("who may not say when the server vacuums would wait for it for a minute")
    with another_connection() as other:
        other.execute(f"ALTER TABLE workflows_workflow SET ({SLOW})")
        other.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
        other.execute("SELECT pg_reload_conf()")
        try:
            for _ in range(10):
                submit(workflow_type="held", payload={"some": "bytes"})
            other.execute(
                """INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload)
                   SELECT gen_random_uuid(), 'held', '{}' FROM generate_series(1, 30000)"""
            )
            other.execute("SET session_replication_role = replica")  # no trigger
            other.execute("DELETE FROM workflows_workflow WHERE id % 2 = 0")
            other.execute("RESET session_replication_role")
            if not _comes(other):
                pytest.skip("the server has come to vacuum nothing, or other databases only, for 40 s")
            yield
        finally:
            other.execute("ALTER SYSTEM RESET autovacuum_naptime")
            other.execute("SELECT pg_reload_conf()")
            other.execute(
                "ALTER TABLE workflows_workflow RESET (autovacuum_vacuum_cost_delay, autovacuum_vacuum_cost_limit)"
            )
            other.execute("TRUNCATE workflows_workflow")


def test_an_autovacuum_gives_way_to_a_migration() -> None:
    """The server cancels it for who waits for a second; half a second is too short, however often it is tried."""
    with vacuumed_by_the_server():
        waiting = Migrating("0001", patience=20.0)
        waiting.end()
        assert columns() == {"ahead"}
        assert waiting.out.getvalue().count(" in use, tried again") <= 2

"""MIGRATING: how a migration that waits for the claims to end asks the workers to take up nothing new.

An advisory lock says so, which ends with the session that holds it: a migration that is killed stops nobody.
"""

from __future__ import annotations

from contextlib import suppress

from django.db import Error, connection
from django.db.backends.base.base import BaseDatabaseWrapper

# Shared by all sessions of a database. The number means nothing.
LOCK = 7_201_407
# A `migrate` that is stopped in its pause, or whose host is gone, holds the workers up no longer than this. Its own
# pauses are seconds.
IDLE_LIMIT = "60s"


def announce(migrating: BaseDatabaseWrapper) -> bool:
    """Ask the workers to take up nothing new. False when just now somebody else asks, or a worker looks."""
    with migrating.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [LOCK])
        announced = bool(cursor.fetchone() == (True,))
        if announced:
            cursor.execute(f"SET idle_session_timeout = '{IDLE_LIMIT}'")
    return announced


def withdraw(migrating: BaseDatabaseWrapper) -> None:
    """Let the workers go on. A session that is gone has let them already."""
    with suppress(Error), migrating.cursor() as cursor:
        cursor.execute("RESET idle_session_timeout")
        cursor.execute("SELECT pg_advisory_unlock(%s)", [LOCK])


def is_announced() -> bool:
    """Whether a migration waits for the claims to end. The lock is tried, and let go at once: no row is read."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock_shared(%s)", [LOCK])
        return bool(cursor.fetchone() == (False,))

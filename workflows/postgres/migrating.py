"""MIGRATING: a migration that waits for the claims to end asks the workers to take up nothing new.

It takes an advisory lock, which ends with its transaction, so that a killed migration stops nobody. The transaction has
its own session and stays open. A session-level lock could stay with a pooler that lends a backend for one transaction,
and the workers would stand still until the pooler closes that backend.
"""

from __future__ import annotations

from contextlib import suppress
from time import sleep

from django.db import Error, connection
from django.db.backends.base.base import BaseDatabaseWrapper

# Shared by all sessions of a database. The number has no meaning.
LOCK = 7_201_407
# For the running migration: another `migrate` waits for it, and then finds that it is done.
ONE_AT_A_TIME = LOCK + 1
# A worker's check takes a moment. Another `migrate` that asks is not waited for.
LOCK_TIMEOUT = "500ms"
# A `migrate` that was frozen in its pause, or whose host is gone, stops the workers no longer than this. Its own pauses
# take seconds.
IDLE_LIMIT = "60s"
# The session's name in pg_stat_activity. It blocks nobody.
NAME = "onramp migrate, asking workers to wait"


class Request:
    """Asks the workers of a migration's database to take up nothing new, from the first `pause` until `withdraw`."""

    def __init__(self, migrating: BaseDatabaseWrapper) -> None:
        self._session: BaseDatabaseWrapper = migrating.copy()

    def pause(self, seconds: float) -> None:
        """Ask, sleep, and keep asking afterwards. If this process never wakes up, the request ends after IDLE_LIMIT.

        Does not ask while somebody else does. After a failure the next pause tries again.
        """
        try:
            if self._session.connection is None:
                self._ask()
            self._limit_silence(IDLE_LIMIT)
        except Error:
            self.withdraw()
        sleep(seconds)
        try:
            self._limit_silence("0")
        except Error:
            self.withdraw()

    def _ask(self) -> None:
        self._session.set_autocommit(False)
        self._execute("SELECT set_config('application_name', %s, true)", NAME)
        self._execute("SELECT set_config('lock_timeout', %s, true)", LOCK_TIMEOUT)
        self._execute("SELECT pg_advisory_xact_lock(%s)", LOCK)

    def withdraw(self) -> None:
        """Let the workers go on. If the session is gone, they already do."""
        with suppress(Error):
            self._session.rollback()
        with suppress(Error):
            self._session.close()

    def _limit_silence(self, limit: str) -> None:
        if self._session.connection is not None:
            self._execute("SELECT set_config('idle_in_transaction_session_timeout', %s, true)", limit)

    def _execute(self, sql: str, parameter: str | int) -> None:
        with self._session.cursor() as cursor:
            cursor.execute(sql, [parameter])


def is_announced() -> bool:
    """Whether a migration waits for the claims to end. Tries the lock and frees it at once; reads no row."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock_shared(%s)", [LOCK])
        return bool(cursor.fetchone() == (False,))

"""Queries of the API: the database answers in time, or `DatabaseUnavailable` is raised. No request ever hangs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, TypeVar

import psycopg
from django.db import DataError, Error, IntegrityError, connection

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# Long enough for a checkpoint's stall, short enough for a client that waits.
TIMEOUT_SECONDS = 5.0


class DatabaseUnavailable(Exception):
    """The database did not answer, or could not do it now. It may later: 503, not 500."""


def query_in_time(query: Callable[[], Result], *, seconds: float = TIMEOUT_SECONDS) -> Result:
    """Return what `query` returns, run on the default connection within `seconds` (connecting has its own limit).

    The connection is kept from request to request and not tested first, so it may have died since (the database was
    restarted): then `query` is run once more on a new one. It must therefore be repeatable. After any other failure
    the connection is closed as well: its server may have become a read-only standby. Raises DatabaseUnavailable; a
    DataError or IntegrityError passes through, because it is about the query's values.
    """
    reused = connection.connection is not None
    deadline = monotonic() + seconds
    try:
        return _run(query, deadline)
    except DatabaseUnavailable:
        if not reused or connection.in_atomic_block or monotonic() >= deadline:
            raise
    return _run(query, monotonic() + seconds)


def _run(query: Callable[[], Result], deadline: float) -> Result:
    try:
        connection.ensure_connection()
        # Else Django would test the connection first, and might continue on a new one that has no limit.
        connection.health_check_done = True  # type: ignore[attr-defined]  # unknown to django-stubs
        with answers_until(connection.connection, deadline):
            return query()
    except (DataError, IntegrityError):
        raise
    except Error as error:
        cause = error.__cause__
        # Neither the message nor DETAIL is logged: they quote stored values.
        logger.warning("The database did not answer: %s %s", type(cause or error).__name__, _sqlstate(cause))
        if not connection.in_atomic_block:
            connection.close()
        raise DatabaseUnavailable from None


@contextmanager
def answers_until(raw: Any, deadline: float) -> Iterator[None]:
    """Wait for the server's answers to this psycopg connection until `deadline` (of the monotonic clock), not longer.

    The server's own `statement_timeout` is no help against a server, or a network, that has fallen silent. Psycopg
    waits for every answer in `Connection.wait`, which takes a timeout; nothing passes one. In a step, the engine's
    session has its own in that place (`workflows.postgres.round_trips`), which goes on hearing of each statement.
    """
    waits, of_the_session = raw.wait, "wait" in vars(raw)

    def wait(generator: Any, *args: Any, **kwargs: Any) -> Any:
        return waits(generator, timeout=max(0.0, deadline - monotonic()))

    raw.wait = wait
    try:
        yield
    finally:
        if of_the_session:
            raw.wait = waits
        else:
            del raw.wait
        if raw.info.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
            # A statement is still running. One that waits for a lock would go on waiting, and nobody reads its answer.
            with suppress(psycopg.Error):
                raw.cancel_safe(timeout=1.0)


def _sqlstate(error: BaseException | None) -> str:
    return (error.sqlstate if isinstance(error, psycopg.Error) else None) or ""

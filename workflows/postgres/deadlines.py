"""What the API asks of the database: an answer in time, or `DatabaseUnavailable`. Never a request that hangs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, TypeVar

import psycopg
from django.db import DataError, Error, IntegrityError, connection

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

# Long enough for a checkpoint's stall, short enough for a client that waits.
PATIENCE_SECONDS = 5.0


class DatabaseUnavailable(Exception):
    """The database did not answer, or could not do it now. Later it may: 503, not 500."""


def ask(question: Callable[[], Answer], *, seconds: float = PATIENCE_SECONDS) -> Answer:
    """Return what `question` does on the default connection, within `seconds` (connecting has a limit of its own).

    The connection is kept from request to request and not tried out first, so it may have died since (a restart of
    the database): then the question is asked once more on a new one. It must therefore be repeatable. After any other
    failure the connection is closed as well: it may be to a server that has become a read-only standby. Raises
    DatabaseUnavailable; a DataError or IntegrityError passes, it is about what was asked.
    """
    reused = connection.connection is not None
    deadline = monotonic() + seconds
    try:
        return _ask(question, deadline)
    except DatabaseUnavailable:
        if not reused or connection.in_atomic_block or monotonic() >= deadline:
            raise
    return _ask(question, monotonic() + seconds)


def _ask(question: Callable[[], Answer], deadline: float) -> Answer:
    try:
        with _giving_up_at(deadline):
            return question()
    except (DataError, IntegrityError):
        raise
    except Error as error:
        cause = error.__cause__
        # Neither message nor DETAIL: they quote what was stored.
        logger.warning("The database did not answer: %s %s", type(cause or error).__name__, _sqlstate(cause))
        if not connection.in_atomic_block:
            connection.close()
        raise DatabaseUnavailable from None


@contextmanager
def _giving_up_at(deadline: float) -> Iterator[None]:
    """Wait for the server's answers until `deadline`, by the monotonic clock, and not longer.

    The server's own `statement_timeout` is no help against a server, or a network, that has fallen silent. Psycopg
    waits for every answer in `Connection.wait`, which takes a timeout; nothing passes one.
    """
    connection.ensure_connection()
    # Else Django would try it first, and go on on a new one that has no limit.
    connection.health_check_done = True  # type: ignore[attr-defined]  # unknown to django-stubs
    raw: Any = connection.connection

    def wait(generator: Any, *args: Any, **kwargs: Any) -> Any:
        return type(raw).wait(raw, generator, timeout=max(0.0, deadline - monotonic()))

    raw.wait = wait
    try:
        yield
    finally:
        del raw.wait
        if raw.info.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
            # A statement is still running: one that waits for a lock would otherwise wait on without us.
            with suppress(psycopg.Error):
                raw.cancel_safe(timeout=1.0)


def _sqlstate(error: BaseException | None) -> str:
    return (error.sqlstate if isinstance(error, psycopg.Error) else None) or ""

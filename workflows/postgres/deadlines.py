"""Queries of the API: the database answers in time, or `DatabaseUnavailable` is raised. No request ever hangs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from django.db import DataError, Error, IntegrityError, connection

from workflows import silence
from workflows.postgres import django_connection, sqlstates
from workflows.postgres.wire import wire_of

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# Long enough for a checkpoint's stall, short enough for a waiting client.
TIMEOUT_SECONDS = 5.0


class DatabaseUnavailable(Exception):
    """The database did not answer, or cannot do it now. It may later: 503, not 500."""


def query_in_time(query: Callable[[], Result], *, seconds: float = TIMEOUT_SECONDS) -> Result:
    """Run `query` on the default connection within `seconds`, and return its result (connecting has its own limit).

    `query` must be repeatable: if the kept connection has died since the last request, `query` runs again on a new one.
    After any other failure the connection is closed as well, because its server may have become a read-only standby.
    Raises DatabaseUnavailable; a DataError or IntegrityError passes through, because it is about the query's values.
    """
    reused = connection.connection is not None
    deadline = monotonic() + seconds
    try:
        return _run(query, seconds)
    except DatabaseUnavailable:
        if not reused or connection.in_atomic_block or monotonic() >= deadline:
            raise
    return _run(query, seconds)


def _run(query: Callable[[], Result], seconds: float) -> Result:
    try:
        known = connection.connection
        if known and not connection.in_atomic_block and silence.is_since(wire_of(known).since):
            connection.close()
        silence.connect(connection)  # may take some seconds for each host that is cut off
        django_connection.trust(connection)  # a new one would have no limit
        with wire_of(connection.connection).answers_until(monotonic() + seconds):
            return query()
    except (DataError, IntegrityError):
        raise
    except Error as error:
        # Neither the message nor DETAIL is logged: they quote stored values.
        logger.warning("The database did not answer: %s", sqlstates.loggable(error))
        left = connection.connection
        if not sqlstates.sqlstate(error) and (left is None or left.closed):  # else the server was there, and slow
            silence.note()
        if not connection.in_atomic_block:
            connection.close()
        raise DatabaseUnavailable from None

"""LINK: an event loop's connection to the database. It answers in time, or is replaced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections

from workflows import silence
from workflows.postgres import session_settings, sqlstates
from workflows.postgres.deadlines import TIMEOUT_SECONDS, DatabaseUnavailable
from workflows.postgres.synchronous import Wait

logger = logging.getLogger(__name__)

# The first two characters of SQLSTATEs for data exceptions, integrity violations and program limits. They concern the
# values that were sent; the connection is still good.
ABOUT_VALUES = ("22", "23", "54")
# Not supported, access and syntax, resources, errors of triggers, faults of the server. Each may concern one row,
# because of a policy, a partition or a broken page.
MAYBE_ABOUT_A_ROW = ("0A", "42", "53", "P0", "XX")
# Another transaction is in the way: lock_not_available, deadlock_detected.
IN_THE_WAY = ("55P03", "40P01")

# Seconds in which an abandoned statement is cancelled, in the background, before its connection is closed.
REAPED_WITHIN = 10.0

Rows = list[tuple[Any, ...]]


class Refused(Exception):
    """PostgreSQL refuses the statement for its values (`about_values`), because another transaction is in the way
    (`in_the_way`), or for another reason, which may concern one row.

    Nothing was stored. PostgreSQL's message is not kept, because it quotes values.
    """

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate
        self.about_values = sqlstate.startswith(ABOUT_VALUES)
        self.in_the_way = sqlstate in IN_THE_WAY
        self.out_of_resources = sqlstate.startswith("53")


class Link:
    """A connection in autocommit, for one statement at a time; the first statement opens it.

    `fetch` never awaits anything that a silent server could delay: a separate task cancels the statement and closes the
    connection, and the next statement opens another one.
    """

    def __init__(self, *, seconds: float = TIMEOUT_SECONDS) -> None:
        self._seconds = seconds
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._since = 0.0
        self._standby: Wait | None = None
        self._reapers: set[asyncio.Task[None]] = set()

    async def fetch(self, statement: str, parameters: Mapping[str, Any] | Sequence[Any]) -> Rows:
        """Return a statement's rows, once it is committed. The statement must be repeatable.

        If the connection has died since its last use, the statement is sent once more on a new one. Raises Refused; and
        DatabaseUnavailable without an answer in time, although the statement may have been committed.
        """
        reused = self._connection is not None
        deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            return await self._fetch(statement, parameters, deadline)
        except DatabaseUnavailable:
            if not reused or asyncio.get_running_loop().time() >= deadline:
                raise
        return await self._fetch(statement, parameters, deadline)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        for reaper in self._reapers:
            reaper.cancel()

    async def _fetch(self, statement: str, parameters: Mapping[str, Any] | Sequence[Any], deadline: float) -> Rows:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._execute(statement, parameters))
        try:
            await asyncio.wait({task}, timeout=deadline - loop.time())
        finally:  # the caller may be cancelled, too
            if not task.done():
                self._replace(task)
        if not task.done():
            logger.warning("The database did not answer in time")
            silence.note()
            raise DatabaseUnavailable
        try:
            return task.result()
        except (psycopg.Error, OSError) as error:
            sqlstate = sqlstates.sqlstate(error)
            if sqlstate.startswith(ABOUT_VALUES) or sqlstate in IN_THE_WAY:
                raise Refused(sqlstate) from None
            if sqlstate.startswith(MAYBE_ABOUT_A_ROW) and self._connection is not None:  # not an error of connecting
                logger.warning("The database refused a statement: %s", sqlstates.loggable(error))
                raise Refused(sqlstate) from None
            # Neither the message nor DETAIL is logged: they quote stored values. The connection is closed, because its
            # server may have become a read-only standby.
            logger.warning("The database did not answer: %s", sqlstates.loggable(error))
            self._replace(task)
            raise DatabaseUnavailable from None

    async def _execute(self, statement: str, parameters: Mapping[str, Any] | Sequence[Any]) -> Rows:
        if self._connection is not None and silence.is_since(self._since):
            await self._connection.close()
            self._connection = None
        if self._connection is None:
            self._since = monotonic()
            self._connection = await _connect()
            self._standby = Wait(self._connection)
        connection, standby = self._connection, self._standby
        cursor = await connection.execute(statement, parameters, prepare=False)
        if standby is not None:
            standby.require_end(connection.pgconn)
        return await cursor.fetchall()

    def _replace(self, task: asyncio.Task[Rows]) -> None:
        connection, self._connection = self._connection, None
        reaper = asyncio.get_running_loop().create_task(_reap(task, connection, self._standby))
        self._reapers.add(reaper)
        reaper.add_done_callback(self._reapers.discard)


async def _reap(
    task: asyncio.Task[Rows], connection: psycopg.AsyncConnection[Any] | None, standby: Wait | None
) -> None:
    """Abandon a statement, then its connection. psycopg asks the server to cancel it, as it may wait for a lock."""
    task.cancel()
    try:
        await asyncio.wait({asyncio.gather(task, return_exceptions=True)}, timeout=REAPED_WITHIN)
    finally:
        if connection is not None:
            with suppress(psycopg.Error):
                if standby is not None and standby.is_cancelled:
                    silence.note_late(connection)
                await connection.close()


def _parameters() -> dict[str, Any]:
    silence.arrange(connections[DEFAULT_DB_ALIAS])
    return connections[DEFAULT_DB_ALIAS].get_connection_params()


async def _connect() -> psycopg.AsyncConnection[Any]:
    """Open a session like Django's, with the same parameters and session settings."""
    parameters = await asyncio.to_thread(_parameters)  # this may start the embedded server
    for of_django in ("cursor_factory", "context"):
        parameters.pop(of_django, None)
    began = monotonic()
    connection = await psycopg.AsyncConnection.connect(**{**parameters, "autocommit": True, "prepare_threshold": None})
    silence.note_connected(connection, parameters.get("host", ""), parameters.get("port", ""), monotonic() - began)
    try:
        await connection.execute(session_settings.sql(DEFAULT_DB_ALIAS))
    except BaseException:
        await connection.close()
        raise
    return connection

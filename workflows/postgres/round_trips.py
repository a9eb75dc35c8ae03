"""ROUND TRIPS: the engine's own statements, in step with what Django knows of the transaction.

Django writes each statement again and sends it alone, which is most of the cost of a short workflow. So these
statements bypass its cursors (`workflows/postgres/wire.py`); Django keeps the transaction. A Django `execute_wrapper`
on the connection still sees them: each then travels alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, DataError, Error, connections, transaction
from psycopg.pq import PipelineStatus, TransactionStatus

from workflows.errors import ClaimLost
from workflows.postgres import django_connection
from workflows.postgres.statements import Parameters
from workflows.postgres.wire import Command, Row, wire_of

SLOW = 0.05  # seconds

BEGIN, COMMIT = Command("BEGIN"), Command("COMMIT")

# As numbers: each step asks twice.
_OFF, _ACTIVE = int(PipelineStatus.OFF), int(TransactionStatus.ACTIVE)


class Session:
    """One connection of Django's, as long as it is open: see `session_of`."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper
        self._raw = wrapper.connection
        self._wire = wire_of(self._raw)
        self._wire.before_others = self._before_others
        self._savepoint = ""  # one that is not made yet
        self._last: Command | None = None  # what is to travel with the COMMIT
        self.is_used = True  # by somebody else than the engine; in a block of `savepoint`, since its start
        # Somebody has ended the transaction that was open when this was set to False, and sent something since. Of a
        # COMMIT and a BEGIN in one string (or a COMMIT AND CHAIN) libpq does not tell.
        self.has_ended = False
        self._raw.prepare_threshold = None  # with a rollback, psycopg drops all that is prepared: ours, too

    def run(self, sql: str, parameters: Parameters) -> list[Row]:
        """Run a prepared statement; return its rows. BEGIN goes with it if need be. Raises Django's database errors."""
        began = monotonic()
        rows = self._send(*self._begun(), Command(sql, parameters))[-1]
        if monotonic() > began + SLOW:
            self._wire.prepare_anew()
        return rows

    def run_with_commit(self, sql: str, parameters: Parameters) -> None:
        """Have the statement sent together with the COMMIT: see `commit`. It is not sent if the transaction fails.

        Nobody looks at its rows before the COMMIT. So the statement divides by zero where it does not find its row:
        then the COMMIT is not carried out.
        """
        self._last = Command(sql, parameters)

    def commit(self) -> None:
        """Commit; Django finds nothing to commit then. Raises ClaimLost when nothing was committed."""
        last, self._last = self._last, None
        if django_connection.must_roll_back(self._wrapper):
            return  # Django rolls it back as its block ends
        if self._raw.pgconn.transaction_status != TransactionStatus.INTRANS:
            raise ClaimLost("the claim's transaction ended before its commit")
        self._send_last(last, COMMIT)

    def send_early(self) -> None:
        """Send what is to travel with the COMMIT before it, for somebody who reads what it has written."""
        last, self._last = self._last, None
        self._send_last(last)

    def _send_last(self, last: Command | None, *commands: Command) -> None:
        try:
            self._send(*([last] if last else []), *commands)
        except DataError as error:
            if isinstance(error.__cause__, psycopg.errors.DivisionByZero):
                raise ClaimLost("the row, or the attempt, is not to be seen") from error
            raise

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Like a nested `atomic()`, but the SAVEPOINT is made only when something is sent: then `is_used` is true."""
        self._make_savepoint()  # the one around this one
        with transaction.atomic(using=self._wrapper.alias, savepoint=False):
            self._savepoint, self.is_used = django_connection.name_savepoint(self._wrapper), False
            try:
                yield
            finally:
                self.is_used = True
            if self._savepoint and not transaction.get_rollback(using=self._wrapper.alias):
                self._savepoint = ""
                django_connection.drop_savepoint(self._wrapper)

    def close_if_busy(self) -> bool:
        """Close the connection if a COPY, a stream or a pipeline was left open; whether it was.

        Psycopg holds a lock of the connection's as long: the next statement would wait for it for ever.
        """
        pgconn = self._raw.pgconn
        if pgconn.pipeline_status == _OFF and pgconn.transaction_status != _ACTIVE:
            return False
        self._wrapper.close()
        return True

    def roll_back(self) -> bool:
        """Roll back whatever there is. Returns whether the session still answers."""
        try:
            self._send(Command("ROLLBACK"))
        except Error:
            return False
        return True

    def forget_prepared(self) -> None:
        """After a DEALLOCATE ALL."""
        self._wire.forget_prepared()

    def _before_others(self) -> None:
        self.is_used = True
        if self._raw.pgconn.transaction_status == TransactionStatus.IDLE:
            self._last = None  # of a transaction that was rolled back
            self.has_ended = True
        self._make_savepoint()

    def _make_savepoint(self) -> None:
        if self._savepoint:
            name, self._savepoint = self._savepoint, ""
            self._send(*self._begun(), Command(f'SAVEPOINT "{name}"'))

    def _begun(self) -> Sequence[Command]:
        is_due = not self._raw.autocommit and self._raw.pgconn.transaction_status == TransactionStatus.IDLE
        return [BEGIN] if is_due else []

    def _send(self, *commands: Command) -> list[list[Row]]:
        """The rows of each statement."""
        if not django_connection.is_watched(self._wrapper):
            return self._exchange(commands)
        return [self._exchange([each])[0] if each in (BEGIN, COMMIT) else self._watched(each) for each in commands]

    def _watched(self, command: Command) -> list[Row]:
        rows: list[Row] = []

        def execute(sql: str, parameters: Any, *_: Any) -> None:
            rows.extend(self._exchange([Command(sql, parameters)])[0])

        django_connection.execute_watched(self._wrapper, execute, *command)
        return rows

    def _exchange(self, commands: Sequence[Command]) -> list[list[Row]]:
        with django_connection.djangos_errors(self._wrapper):
            return self._wire.exchange(commands)


def session_of(alias: str = DEFAULT_DB_ALIAS) -> Session:
    """The session of one of this thread's connections, which is opened if need be."""
    wrapper: Any = connections[alias]
    wrapper.ensure_connection()
    session: Session | None = getattr(wrapper.connection, "engine_session", None)
    if session is None:
        session = wrapper.connection.engine_session = Session(wrapper)
    return session

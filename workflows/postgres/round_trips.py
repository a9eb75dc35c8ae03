"""ROUND TRIPS: run the engine's own statements without losing what Django knows of the transaction.

Django rewrites each statement and sends it alone, which is most of the cost of a short workflow. So these statements
bypass its cursors (`workflows/postgres/wire.py`), while Django keeps the transaction. A Django `execute_wrapper` on the
connection still sees them; each is then sent alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, DataError, Error, transaction
from psycopg.pq import PipelineStatus, TransactionStatus

from workflows.errors import ClaimLost
from workflows.postgres import django_connection
from workflows.postgres.statements import Parameters
from workflows.postgres.wire import Command, Row, wire_of

SLOW = 0.05  # seconds

BEGIN, COMMIT = Command("BEGIN"), Command("COMMIT")

# As numbers, because each step compares them twice.
_OFF, _ACTIVE, _INTRANS = int(PipelineStatus.OFF), int(TransactionStatus.ACTIVE), int(TransactionStatus.INTRANS)


class Session:
    """One of Django's connections, while it is open: see `session_of`."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper
        self._raw = wrapper.connection
        self._djangos_errors = django_connection.djangos_errors(wrapper)
        self._wire = wire_of(self._raw)
        self._wire.before_others = self._before_others
        self._savepoint = ""  # the name of one that is not made yet
        self._last: Command | None = None  # to be sent with the COMMIT
        self._slow = ""  # the statement that was slow last
        self.is_used = True  # by others than the engine; in a block of `savepoint`, since its start
        # Set to False at the start. True once somebody has ended the transaction and sent something since. libpq cannot
        # see a COMMIT and a BEGIN in one string, or a COMMIT AND CHAIN.
        self.has_ended = False
        self._raw.prepare_threshold = None  # after a rollback psycopg drops everything prepared, ours as well

    def run(self, sql: str, parameters: Parameters) -> list[Row]:
        """Run a prepared statement, with BEGIN if needed; return its rows. Raises Django's database errors."""
        began = monotonic()
        rows = self._send(*self._begun(), Command(sql, parameters))[-1]
        if monotonic() > began + SLOW:
            if sql == self._slow:  # once is a busy machine: there, plans made anew were 15% of the server's time
                self._wire.prepare_anew()
            self._slow = sql
        elif sql == self._slow:
            self._slow = ""
        return rows

    def run_with_commit(self, sql: str, parameters: Parameters) -> None:
        """Send the statement together with the COMMIT: see `commit`. It is not sent if the transaction fails.

        Nobody sees its rows before the COMMIT. So the statement divides by zero if it does not find its row, and the
        COMMIT is not carried out.
        """
        self._last = Command(sql, parameters)

    def commit(self) -> bool:
        """Commit, so that Django finds nothing to commit; False if Django has to roll back. Raises ClaimLost when the
        transaction has ended without a commit.
        """
        last, self._last = self._last, None
        if django_connection.must_roll_back(self._wrapper):
            return False  # Django rolls back at the end of its block
        if self._raw.pgconn.transaction_status != TransactionStatus.INTRANS:
            raise ClaimLost("the claim's transaction ended before its commit")
        self._send_last(last, COMMIT)
        return True

    def send_early(self) -> None:
        """Send the statement that waits for the COMMIT now, because somebody reads what it writes."""
        last, self._last = self._last, None
        self._send_last(last)

    def _send_last(self, last: Command | None, *commands: Command) -> None:
        try:
            self._send(*([last] if last else []), *commands)
        except DataError as error:
            if isinstance(error.__cause__, psycopg.errors.DivisionByZero):
                raise ClaimLost("the row, or the attempt, is not to be seen") from error
            raise

    def savepoint(self) -> Savepoint:
        """A nested `atomic()` whose SAVEPOINT is made only when something is sent; `is_used` is then true."""
        return Savepoint(self)

    def is_broken(self) -> bool:
        """Whether the transaction has ended or must be rolled back: a failed statement, or a closed connection."""
        claim = self._wrapper
        if claim.needs_rollback or claim.closed_in_transaction or claim.connection is None or self.has_ended:
            return True
        return bool(self._raw.pgconn.transaction_status != _INTRANS)

    def close_if_busy(self) -> bool:
        """Close the connection if a COPY, a stream or a pipeline was left open; return whether it was.

        Until then psycopg holds a lock of the connection, and the next statement would wait for it for ever.
        """
        pgconn = self._raw.pgconn
        if pgconn.pipeline_status == _OFF and pgconn.transaction_status != _ACTIVE:
            return False
        self._wrapper.close()
        return True

    def roll_back(self) -> bool:
        """Roll back any transaction. Returns whether the session still answers."""
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
            self._last = None  # its transaction was rolled back
            self.has_ended = True
        self._make_savepoint()

    def _make_savepoint(self) -> None:
        if self._savepoint:
            name, self._savepoint = self._savepoint, ""
            self._send(*self._begun(), Command(f'SAVEPOINT "{name}"'))

    def _begun(self) -> Sequence[Command]:
        is_due = not self._wrapper.autocommit and self._raw.pgconn.transaction_status == TransactionStatus.IDLE
        return [BEGIN] if is_due else []

    def _send(self, *commands: Command) -> list[list[Row]]:
        """The rows of each statement."""
        if self._wrapper.execute_wrappers:
            return [self._exchange([each])[0] if each in (BEGIN, COMMIT) else self._watched(each) for each in commands]
        with self._djangos_errors:
            return self._wire.exchange(commands)

    def _watched(self, command: Command) -> list[Row]:
        rows: list[Row] = []

        def execute(sql: str, parameters: Any, *_: Any) -> None:
            rows.extend(self._exchange([Command(sql, parameters)])[0])

        django_connection.execute_watched(self._wrapper, execute, command.sql, command.parameters)
        return rows

    def _exchange(self, commands: Sequence[Command]) -> list[list[Row]]:
        with self._djangos_errors:
            return self._wire.exchange(commands)


class Savepoint(AbstractContextManager[None]):
    """The block of `Session.savepoint`: a class, because `contextmanager` takes three times as long."""

    __slots__ = ("_block", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._block = transaction.atomic(using=session._wrapper.alias, savepoint=False)

    def __enter__(self) -> None:
        session = self._session
        session._make_savepoint()  # of the enclosing block
        self._block.__enter__()
        session._savepoint, session.is_used = django_connection.name_savepoint(session._wrapper), False

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        session = self._session
        session.is_used = True
        if error is None and session._savepoint and not session._wrapper.needs_rollback:
            session._savepoint = ""
            django_connection.drop_savepoint(session._wrapper)
        self._block.__exit__(kind, error, trace)


def session_of(alias: str = DEFAULT_DB_ALIAS) -> Session:
    """The session of one of this thread's connections; opens the connection if needed."""
    wrapper = django_connection.wrapper_of(alias)
    if wrapper.connection is None:
        wrapper.ensure_connection()
    try:
        session: Session = wrapper.connection.engine_session
    except AttributeError:  # its first
        session = wrapper.connection.engine_session = Session(wrapper)
    return session

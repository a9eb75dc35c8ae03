"""ROUND TRIPS: the engine's own statements, which the server keeps prepared, and several of which share one trip to it.

Django writes each statement anew and sends it alone. For a workflow whose steps take no time that is most of what it
costs. Here a statement is parsed once a minute, and BEGIN and COMMIT travel with the statement beside them: libpq's
pipeline mode, with one flush. (Psycopg's own `pipeline()` flushes after each command.)

Whoever watches a connection by Django's `execute_wrapper` sees these statements too: while somebody does, each of them
travels alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, partial
from itertools import accumulate
from time import monotonic
from typing import Any, NamedTuple

import psycopg
from django.db import DEFAULT_DB_ALIAS, DataError, connections, transaction
from psycopg import generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus

from workflows.errors import ClaimLost
from workflows.postgres.statements import Parameters

# Seconds. A plan that is kept was made for the table as it was: a claim's, made on an empty table, took 100 ms each
# time when 60,000 rows had come. So one that takes long is made anew a second later.
PREPARED_FOR, IF_SLOW = 60.0, 1.0
SLOW = 0.05

_PARAMETER = re.compile(r"%(?:\((\w+)\))?s|%%")

Row = tuple[Any, ...]
Lock = AbstractContextManager[Any]


class Command(NamedTuple):
    """A statement and its parameters; without parameters it is sent as it is, and not prepared."""

    sql: str
    parameters: Parameters | None = None


BEGIN, COMMIT = Command("BEGIN"), Command("COMMIT")


class Bound(NamedTuple):
    """A command as the server takes it; `values` is None for one that is not prepared."""

    text: bytes
    values: Sequence[Any] | None = None
    types: tuple[int, ...] = ()
    formats: Sequence[Any] | None = None


_DROP_PREPARED = Bound(b"DEALLOCATE ALL")


class Prepared(NamedTuple):
    """A statement that the server keeps under a name; when it was prepared, and is to be prepared anew."""

    name: bytes
    since: float
    until: float


class Session:
    """One connection of Django's, as long as it is open: see `session_of`."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper
        self._raw = wrapper.connection
        self._values = Transformer(self._raw)
        self._prepared: dict[tuple[bytes, tuple[int, ...]], Prepared] = {}
        self._names = 0
        self._is_unsure = False  # an exchange failed: some of what it was to prepare, and to drop, it has
        self._savepoint = ""  # one that is not made yet
        self._last: Command | None = None  # what is to travel with the COMMIT
        self.is_used = True  # by somebody else than the engine; in a block of `savepoint`, since its start
        self._raw.wait = self._wait
        self._raw.prepare_threshold = None  # with a rollback, psycopg drops all that is prepared: ours, too

    def run(self, sql: str, parameters: Parameters) -> list[Row]:
        """Run a statement of the engine's, prepared; its rows. BEGIN goes with it if the transaction is to start.

        Raises Django's errors of the database.
        """
        began = monotonic()
        rows = self._send(*self._begun(), Command(sql, parameters))[-1]
        if monotonic() > began + SLOW:
            for key, known in self._prepared.items():
                self._prepared[key] = known._replace(until=min(known.until, known.since + IF_SLOW))
        return rows

    def run_with_commit(self, sql: str, parameters: Parameters) -> None:
        """Have the statement sent together with the COMMIT: see `commit`. It is not sent if the transaction fails.

        Nobody looks at its rows before the COMMIT. So it divides by zero where it does not find what it is about: then
        the COMMIT is not carried out.
        """
        self._last = Command(sql, parameters)

    def commit(self) -> None:
        """Commit; Django finds nothing to commit then. Raises ClaimLost when nothing was committed."""
        last, self._last = self._last, None
        if self._wrapper.needs_rollback or self._wrapper.closed_in_transaction:
            return  # Django rolls it back as its block ends
        if self._raw.pgconn.transaction_status != TransactionStatus.INTRANS:
            raise ClaimLost("the claim's transaction ended before its commit")
        try:
            self._send(*([last] if last else []), COMMIT)
        except DataError as error:
            if isinstance(error.__cause__, psycopg.errors.DivisionByZero):
                raise ClaimLost("the row, or the attempt, is not to be seen") from error
            raise

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """As `atomic()` within a transaction; but the SAVEPOINT is made as something is sent, and not if nothing is.

        In the block `is_used` tells whether anything was.
        """
        self._make_savepoint()  # the one around this one
        with transaction.atomic(using=self._wrapper.alias, savepoint=False):
            self._wrapper.savepoint_state += 1
            name = f"onramp_{self._wrapper.savepoint_state}"
            self._wrapper.savepoint_ids[-1] = name  # Django rolls back to it, or releases it
            self._savepoint, self.is_used = name, False
            try:
                yield
            finally:
                self.is_used = True
            if self._savepoint and not self._wrapper.needs_rollback:
                self._savepoint, self._wrapper.savepoint_ids[-1] = "", None  # there is nothing to release

    def forget_prepared(self) -> None:
        """After a DEALLOCATE ALL."""
        self._prepared.clear()
        self._is_unsure = False

    # --- The wire -------------------------------------------------------------------------------------

    def _wait(self, generator: Any, *args: Any, **kwargs: Any) -> Any:
        """In place of the connection's own `wait`, by which psycopg sends all that anybody sends on this connection."""
        self.is_used = True
        if self._raw.pgconn.transaction_status == TransactionStatus.IDLE:
            self._last = None  # of a transaction that was rolled back
        self._make_savepoint()
        return type(self._raw).wait(self._raw, generator, *args, **kwargs)

    def _make_savepoint(self) -> None:
        if self._savepoint:
            name, self._savepoint = self._savepoint, ""
            self._send(*self._begun(), Command(f'SAVEPOINT "{name}"'), lock=nullcontext())  # psycopg has it

    def _begun(self) -> Sequence[Command]:
        is_due = not self._raw.autocommit and self._raw.pgconn.transaction_status == TransactionStatus.IDLE
        return [BEGIN] if is_due else []

    def _send(self, *commands: Command, lock: Lock | None = None) -> list[list[Row]]:
        """The rows of each. `lock`: instead of the connection's own."""
        lock = lock or self._raw.lock
        if not self._wrapper.execute_wrappers:
            return self._exchange(commands, lock)
        return [
            self._exchange([each], lock)[0] if each in (BEGIN, COMMIT) else self._watched(each, lock)
            for each in commands
        ]

    def _watched(self, command: Command, lock: Lock) -> list[Row]:
        """Send it through Django's `execute_wrapper`s, as its own cursor does."""
        rows: list[Row] = []

        def execute(sql: str, parameters: Any, *_: Any) -> None:
            rows.extend(self._exchange([Command(sql, parameters)], lock)[0])

        for wrapper in reversed(self._wrapper.execute_wrappers):
            execute = partial(wrapper, execute)
        execute(*command, False, {"connection": self._wrapper, "cursor": None})
        return rows

    def _exchange(self, commands: Sequence[Command], lock: Lock) -> list[list[Row]]:
        with lock, self._wrapper.wrap_database_errors:
            bound = [self._bind(command) for command in commands]  # before anything is sent, for it may fail
            first = [_DROP_PREPARED] if self._is_unsure else []
            results = type(self._raw).wait(self._raw, self._talk([*first, *bound]))
            for result in results:
                if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                    self._prepared.clear()  # what was to be prepared after it is not
                    self._is_unsure = True
                    raise error_from_result(result)
            self._is_unsure = False
            return [self._rows(result) for result in results[len(first) :]]

    def _bind(self, command: Command) -> Bound:
        if command.parameters is None:
            return Bound(command.sql.encode())
        text, names = _numbered(command.sql)
        values = command.parameters
        if isinstance(values, Mapping):
            values = [values[name] for name in names]
        dumped = self._values.dump_sequence(values, [PyFormat.AUTO] * len(values))
        return Bound(text, dumped, tuple(self._values.types or ()), self._values.formats)

    def _talk(self, commands: Sequence[Bound]) -> Any:
        """Send them, and return their results, or the one that failed: then those after it are not carried out.

        A generator: where it yields, psycopg waits for the socket.
        """
        pgconn, results, failed = self._raw.pgconn, [], None
        if pgconn.pipeline_status != PipelineStatus.OFF:  # its results would be taken for ours
            raise psycopg.OperationalError("a statement was interrupted, and its answer never read")
        pgconn.enter_pipeline_mode()
        places = list(accumulate(self._put(command) for command in commands))
        pgconn.pipeline_sync()
        yield from generators.send(pgconn)
        try:
            while result := (yield from _fetch(pgconn)):
                failed = result if result.status == ExecStatus.FATAL_ERROR else failed
                results.append(result)
            pgconn.exit_pipeline_mode()
        except psycopg.OperationalError:
            if not failed:
                raise  # else the server has said why, and closed the connection
        return [failed] if failed else [results[place - 1] for place in places]

    def _put(self, command: Bound) -> int:
        """Put a command into libpq's buffer; how many results it has, the last one being its own."""
        pgconn = self._raw.pgconn
        if command.values is None:
            pgconn.send_query_params(command.text, None)
            return 1
        known, others, now = self._prepared.get((command.text, command.types)), 0, monotonic()
        if known is None or now >= known.until:
            if known:
                pgconn.send_query_params(b"DEALLOCATE " + known.name, None)
                others += 1
            self._names += 1
            known = Prepared(b"onramp_%d" % self._names, now, now + PREPARED_FOR)
            pgconn.send_prepare(known.name, command.text, command.types)
            others += 1
            self._prepared[command.text, command.types] = known
        pgconn.send_query_prepared(known.name, command.values, command.formats)
        return others + 1

    def _rows(self, result: Any) -> list[Row]:
        if result.status != ExecStatus.TUPLES_OK:
            return []
        self._values.set_pgresult(result)
        return self._values.load_rows(0, result.ntuples, tuple)


def _fetch(pgconn: Any) -> Any:
    """The result of the next statement; None after the last one."""
    fetched = yield from generators.fetch_many(pgconn)
    if not fetched:
        raise psycopg.OperationalError("the connection is lost")
    return None if fetched[0].status == ExecStatus.PIPELINE_SYNC else fetched[0]


def session_of(alias: str = DEFAULT_DB_ALIAS) -> Session:
    """The session of one of this thread's connections, which is opened unless it is open."""
    wrapper: Any = connections[alias]
    wrapper.ensure_connection()
    session: Session | None = getattr(wrapper.connection, "engine_session", None)
    if session is None:
        session = wrapper.connection.engine_session = Session(wrapper)
    return session


@lru_cache(maxsize=256)
def _numbered(sql: str) -> tuple[bytes, list[str]]:
    """The statement with its parameters by number, as the server knows them, and their names in that order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        name = found[1] or str(len(names))
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _PARAMETER.sub(number, sql).encode(), names

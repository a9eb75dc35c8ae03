"""WIRE: prepared statements, several of which share one trip to the server.

A statement is parsed once a minute, and BEGIN and COMMIT are sent with the statement next to them: libpq's pipeline
mode, with one flush. (Psycopg's own `pipeline()` flushes after each command.) Only this module knows psycopg's inner
parts; tests/config/test_foreign_parts.py names them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import inf
from time import monotonic
from typing import Any, NamedTuple

import psycopg
from psycopg import generators
from psycopg.adapt import AdaptersMap, PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format, PipelineStatus, TransactionStatus

from workflows.postgres.statements import Parameters
from workflows.postgres.synchronous import Wait

# Seconds. A plan is made for the table as it then was: a claim's plan, made on an empty table, took 100 ms each time
# after 60,000 rows had come. So what is slow twice in a row is prepared again a second later.
PREPARED_FOR, IF_SLOW = 60.0, 1.0

# Seconds without an answer until a session checks whether it is half-open, and between its later checks; a check that
# reached no server, as in a failover, is repeated sooner.
SILENCE, LOOK_EVERY, LOOK_AGAIN = 4.0, 8.0, 1.0
# Monotonic time. This process has to end: after this it waits for no answer if the server accepts no new connection.
_give_up_at = inf

_PARAMETER = re.compile(r"%(?:\((\w+)\))?s|%%")

Row = tuple[Any, ...]


@dataclass(slots=True)
class Command:
    """A statement and its parameters; without parameters it is sent as it is, not prepared."""

    sql: str
    parameters: Parameters | None = None


@dataclass(slots=True)
class Bound:
    """A command in the server's form; `values` is None for one that is not prepared."""

    text: bytes
    values: Sequence[Any] | None = None
    types: tuple[int, ...] = ()
    formats: Sequence[Any] | None = None


_DROP_PREPARED = Bound(b"DEALLOCATE ALL")


class Prepared(NamedTuple):
    """A statement that the server keeps under a name: when it was prepared, and until when it may be used."""

    name: bytes
    since: float
    until: float


class _Context(NamedTuple):
    """What psycopg converts values for, and how."""

    connection: Any
    adapters: AdaptersMap


def _adapters(djangos: AdaptersMap) -> AdaptersMap:
    """As Django's, but times are read in C: Django's own loader is 3% of a claim's processor time."""
    adapters, timestamptz = AdaptersMap(djangos), psycopg.adapters.types["timestamptz"].oid
    if loader := psycopg.adapters.get_loader(timestamptz, Format.TEXT):
        adapters.register_loader(timestamptz, loader)
    return adapters


class Wire:
    """A psycopg connection, while it is open: see `wire_of`."""

    def __init__(self, raw: Any) -> None:
        self._raw, self.since = raw, monotonic()
        self._values = Transformer(_Context(raw, _adapters(raw.adapters)))
        self._prepared: dict[tuple[bytes, tuple[int, ...]], Prepared] = {}
        self._names = 0
        self._is_unsure = False  # an exchange failed: it is unknown what the server has prepared and dropped
        self._deadline: float | None = None
        self.before_others: Callable[[], None] = lambda: None  # called before anybody else sends something
        # See workflows.postgres.half_open. None: no server was reached.
        self.close_if_half_open: Callable[[float], bool | None] = lambda waited: False
        self._standby = Wait(raw)
        raw.wait = self._carry
        raw.commit, raw.set_autocommit = self._commit, self._set_autocommit

    def exchange(self, commands: Sequence[Command]) -> list[list[Row]]:
        """Send these commands in one trip; return the rows of each."""
        bound = list(map(self._bind, commands))  # before anything is sent, because it may fail
        first = [_DROP_PREPARED] if self._is_unsure else []
        results = self._wait(self._talk([*first, *bound]))
        for result in results:
            if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                self._prepared.clear()  # statements after it were not prepared
                self._is_unsure = True
                raise error_from_result(result)
        self._is_unsure = False
        return list(map(self._rows, results[len(first) :]))

    def prepare_anew(self) -> None:
        """After slow statements, let all plans expire that are older than a second by then."""
        for key, known in self._prepared.items():
            self._prepared[key] = known._replace(until=min(known.until, known.since + IF_SLOW))

    def forget_prepared(self) -> None:
        """After a DEALLOCATE ALL."""
        self._prepared.clear()
        self._is_unsure = False

    @contextmanager
    def answers_until(self, deadline: float) -> Iterator[None]:
        """Wait for answers until `deadline` (monotonic): `statement_timeout` does not help with a silent server."""
        before, self._deadline = self._deadline, deadline
        try:
            yield
        finally:
            self._deadline = before
            if self._raw.info.transaction_status == TransactionStatus.ACTIVE:
                # Otherwise a statement that still runs, perhaps waiting for a lock, would go on without a reader.
                with suppress(psycopg.Error):
                    self._raw.cancel_safe(timeout=1.0)

    def _carry(self, generator: Any, *args: Any, **kwargs: Any) -> Any:
        """Replaces the connection's own `wait`, through which psycopg sends everything."""
        self.before_others()
        return self._wait(generator, *args, **kwargs)

    # Django calls these around each transaction, mostly when none is open: before the engine's BEGIN, after its COMMIT.
    # Psycopg's own then do no more than these, with 45 calls of the 630 of a claim.
    def _commit(self) -> None:
        if self._raw.pgconn.transaction_status != TransactionStatus.IDLE:
            type(self._raw).commit(self._raw)

    def _set_autocommit(self, value: bool) -> None:
        if self._raw.pgconn.transaction_status == TransactionStatus.IDLE:
            self._raw._autocommit = value
        else:
            type(self._raw).set_autocommit(self._raw, value)

    def _wait(self, generator: Any, *args: Any, **kwargs: Any) -> Any:
        result = self._answer(generator, *args, **kwargs)
        self._standby.require_end(self._raw.pgconn)
        return result

    def _answer(self, generator: Any, *args: Any, **kwargs: Any) -> Any:
        if self._deadline is None and "timeout" in kwargs:  # `notifies()`: the server owes no answer
            return type(self._raw).wait(self._raw, generator, *args, **kwargs)
        if self._deadline is not None:
            kwargs["timeout"] = max(0.0, self._deadline - monotonic())
        else:
            kwargs["timeout"] = SILENCE if _give_up_at == inf else 1.0
        try:
            return type(self._raw).wait(self._raw, generator, *args, **kwargs)
        except psycopg.errors._WaitTimeout:
            if self._deadline is None:
                return self._wait_on(generator, *args, **kwargs)
            if self.close_if_half_open(0.0) is None:  # its transaction may hold locks
                self._raw.pgconn.finish()  # no server answers: the ROLLBACK would look for one once more
            raise

    def _wait_on(self, generator: Any, *args: Any, **kwargs: Any) -> Any:
        """Wait as long as it takes, but not on a half-open connection."""
        since = monotonic() - SILENCE
        look_at, kwargs["timeout"] = monotonic(), min(LOOK_EVERY, 1.0)  # a signal does not end a wait
        while True:
            if (now := monotonic()) >= look_at or gives_up():
                closed = self.close_if_half_open(now - since)
                look_at = monotonic() + (LOOK_AGAIN if closed is None else LOOK_EVERY)
                if closed:
                    raise psycopg.OperationalError("the connection passed nothing on")
            with suppress(psycopg.errors._WaitTimeout):
                return type(self._raw).wait(self._raw, generator, *args, **kwargs)

    def _bind(self, command: Command) -> Bound:
        if command.parameters is None:
            return Bound(command.sql.encode())
        text, names = _numbered(command.sql)
        values: Any = command.parameters
        if not isinstance(values, list | tuple):
            values = [values[name] for name in names]
        dumped = self._values.dump_sequence(values, [PyFormat.AUTO] * len(values))
        return Bound(text, dumped, tuple(self._values.types or ()), self._values.formats)

    def _talk(self, commands: Sequence[Bound]) -> Any:
        """Send the commands. Returns their results, or only the failed one: the server skips the commands after it.

        A generator: where it yields, psycopg waits for the socket.
        """
        pgconn, results, failed = self._raw.pgconn, [], None
        if pgconn.pipeline_status != PipelineStatus.OFF:  # its results would be mistaken for ours
            raise psycopg.OperationalError("a statement was interrupted, and its answer never read")
        pgconn.enter_pipeline_mode()
        places = list(accumulate(map(self._put, commands)))
        pgconn.pipeline_sync()
        yield from generators.send(pgconn)
        try:
            while result := (yield from _fetch(pgconn)):
                failed = result if result.status == ExecStatus.FATAL_ERROR else failed
                results.append(result)
            pgconn.exit_pipeline_mode()
        except psycopg.OperationalError:
            if not failed:
                raise  # if it has failed, the server has given its reason and closed the connection
        return [failed] if failed else [results[place - 1] for place in places]

    def _put(self, command: Bound) -> int:
        """Put a command into libpq's buffer. Returns the number of its results; the last one is its own."""
        pgconn = self._raw.pgconn
        if command.values is None:
            pgconn.send_query_params(command.text, None)
            return 1
        known, others, now = self._prepared.get((command.text, command.types)), 0, monotonic()
        if known is None or now >= known.until:
            for key in [key for key, each in self._prepared.items() if now >= each.until]:
                pgconn.send_query_params(b"DEALLOCATE " + self._prepared.pop(key).name, None)
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


def give_up_in(seconds: float) -> None:
    """This process has to end. After `seconds` no session waits for an answer if no new connection can be made."""
    global _give_up_at
    _give_up_at = min(_give_up_at, monotonic() + seconds)


def gives_up() -> bool:
    """Whether that time has come."""
    return monotonic() >= _give_up_at


def wire_of(raw: Any) -> Wire:
    """The wire of a psycopg connection, stored on the connection."""
    wire: Wire | None = getattr(raw, "onramp_wire", None)
    if wire is None:
        wire = raw.onramp_wire = Wire(raw)
    return wire


def _fetch(pgconn: Any) -> Any:
    """The result of the next statement; None after the last one."""
    fetched = yield from generators.fetch_many(pgconn)
    if not fetched:
        raise psycopg.OperationalError("the connection is lost")
    return None if fetched[0].status == ExecStatus.PIPELINE_SYNC else fetched[0]


@lru_cache(maxsize=256)
def _numbered(sql: str) -> tuple[bytes, list[str]]:
    """The statement with numbered parameters, as the server needs it, and their names in that order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        name = found[1] or str(len(names))
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _PARAMETER.sub(number, sql).encode(), names

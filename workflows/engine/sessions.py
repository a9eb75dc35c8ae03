"""SESSIONS: before a worker claims anything, it checks that its two sessions are fit for the engine.

Behind a pooler they may not be. If no restart can help, the worker refuses to work. A read-only server is in the middle
of a failover: the worker waits for it as for a server that is away.
"""

from __future__ import annotations

from secrets import randbits, token_hex
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from workflows import silence
from workflows.engine import lease
from workflows.errors import ClaimLost
from workflows.postgres import session_settings, sqlstates
from workflows.postgres.django_connection import wrapper_of
from workflows.state import attempt_log

# The exit code of a worker process that refuses to work: EX_CONFIG of <sysexits.h>.
REFUSED = 78
# How often the claim's backend is read, while this worker uses no other session.
TIMES = 3

IS_READ_ONLY = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool"  # or set to be

CURE = 'Connect the workers to PostgreSQL itself: see docs/deployment.md, "How many connections".'


class UnfitSessions(Exception):
    """No worker can work with these sessions, however often it is restarted. The message is for a person."""


def refuse_unfit(name: str) -> None:
    """Raise UnfitSessions when the sessions of the worker `name` would be unfit. Leaves none open.

    A database that is away, or read-only for now, raises nothing here: workers wait for it.
    """
    wrappers = [connections.create_connection(alias) for alias in (DEFAULT_DB_ALIAS, attempt_log.ALIAS)]
    for wrapper in wrappers:
        wrapper.settings_dict = {**wrapper.settings_dict, "OPTIONS": lease.options(wrapper.alias, name)}
    try:
        _check(*wrappers)
    except (ClaimLost, *sqlstates.DATABASE_ERRORS):
        return
    finally:
        for wrapper in wrappers:
            wrapper.close()


def ensure_fit() -> None:
    """Open this process's two connections unless they are open; check them when one is new.

    Raises UnfitSessions; ClaimLost or the database's error when there is no database, or it is read-only.
    """
    claim, writer = wrapper_of(DEFAULT_DB_ALIAS), wrapper_of(attempt_log.ALIAS)
    if claim.connection is None or writer.connection is None:
        _check(claim, writer)


def _check(claim: Any, writer: Any) -> None:
    """Check the sessions of the claim and of the attempt log, neither in a transaction.

    1. Each session has the parameters that it set when it was opened.
    2. The server accepts writes.
    3. Each session has its own backend, even while the other is in a transaction, and keeps its settings from one
       transaction to the next. Each session is refused a lock that the other holds.
    """
    host = sqlstates.host_port(writer.alias)
    sessions = [_open(wrapper, host) for wrapper in (claim, writer)]
    for session in sessions:
        if _fetch_one(session, IS_READ_ONLY) == (True,):
            raise ClaimLost("the server is read-only: a standby, or set to be")
    if not _is_one_backend_each(*sessions):
        raise UnfitSessions(
            f"The server at {host} lends a session one backend after another, as a pooler in transaction mode does: "
            f"leases, locks and prepared statements do not hold there. {CURE}"
        )


def _open(wrapper: Any, host: str) -> Any:
    """Open the connection, and check that the session has its parameters. Returns psycopg's connection."""
    try:
        silence.connect(wrapper)
    except sqlstates.DATABASE_ERRORS as error:
        if sqlstates.NO_STARTUP_OPTIONS in sqlstates.loggable(error):
            raise UnfitSessions(f"The server at {host} takes no startup options, as a pooler. {CURE}") from error
        raise
    # The source of each value, and not the value: the server rewrites values (120000 becomes 2min).
    ignored = _fetch_one(
        wrapper.connection,
        """SELECT array_agg(name ORDER BY name) FROM pg_settings
            WHERE name = ANY (%s) AND source <> 'client' OR name = ANY (%s) AND source <> 'session'""",
        lease.configured_parameters(wrapper),
        list(session_settings.told(wrapper)),
    )[0]
    if ignored:
        raise UnfitSessions(
            f"The server at {host} ignores what a worker asks of its session, as a pooler that drops startup options: "
            f"{', '.join(ignored)}. {CURE}"
        )
    return wrapper.connection


def _is_one_backend_each(claim: Any, writer: Any) -> bool:
    """Whether each of the two sessions keeps one backend of its own.

    A pool that lends the backend that became free last gives both sessions the same one. A pool that lends them in turn
    gives the first session another backend for its next statement.
    """
    mark, lock = token_hex(8), randbits(62)
    whose = "SELECT pg_backend_pid(), current_setting('onramp.session', true)"
    first = _fetch_one(claim, "SELECT pg_backend_pid(), set_config('onramp.session', %s, false)", mark)
    with writer.transaction():
        other = _fetch_one(writer, "SELECT pg_backend_pid(), pg_try_advisory_xact_lock(%s)", lock)
        if other == (first[0], True):
            return False  # now: in a pool of one, the next statement would wait for this very backend
        locked_by_both = _fetch_one(claim, "SELECT pg_try_advisory_xact_lock(%s)", lock)
    seen = {_fetch_one(claim, whose) for _ in range(TIMES)}
    return seen == {first} and other[1] and locked_by_both == (False,)


def _fetch_one(session: Any, sql: str, *parameters: Any) -> tuple[Any, ...]:
    return tuple(session.execute(sql, parameters, prepare=False).fetchone())

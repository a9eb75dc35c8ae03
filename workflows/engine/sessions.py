"""SESSIONS: before a worker claims anything, it checks that its two sessions are what the engine relies on.

Behind a pooler none of that is certain. The worker refuses to work where no restart would help. A server that is
read-only is in the middle of a failover: the worker waits for it as for a server that is away.
"""

from __future__ import annotations

from secrets import randbits, token_hex
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from workflows.engine import lease
from workflows.errors import ClaimLost
from workflows.postgres import session_settings, sqlstates
from workflows.state import attempt_log

# The exit code of a worker process that refuses to work: EX_CONFIG of <sysexits.h>.
REFUSED = 78
# How often the claim's backend is read, while no other session of this worker is in use.
TIMES = 3

CURE = 'Connect the workers to PostgreSQL itself: see docs/deployment.md, "How many connections".'


class UnfitSessions(Exception):
    """No worker can work through these sessions, however often it is started. The message is for a person."""


def refuse_unfit(name: str) -> None:
    """Raise UnfitSessions when the sessions that the worker `name` would open are unfit. None is left open.

    A database that is away, or read-only for now, is the business of the workers, which wait for it.
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
    """Open this process's two connections unless they are open; look at them when one is new.

    Raises UnfitSessions; ClaimLost or the database's error when there is no database, or one that takes no writes.
    """
    claim, writer = connections[DEFAULT_DB_ALIAS], connections[attempt_log.ALIAS]
    if claim.connection is None or writer.connection is None:
        _check(claim, writer)


def _check(claim: Any, writer: Any) -> None:
    """Look at the session of the claim and that of the attempt log, neither in a transaction.

    1. Each session has the parameters that it set as it was opened.
    2. The server takes writes.
    3. Each session has a backend of its own, also while the other one is in a transaction, and keeps what is set from
       one transaction to the next. A lock that one of them holds is refused to the other.
    """
    place = sqlstates.host_port(writer.alias)
    sessions = [_open(wrapper, place) for wrapper in (claim, writer)]
    for session in sessions:
        (is_read_only,) = _fetch_one(
            session, "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool"
        )
        if is_read_only:
            raise ClaimLost("the server is read-only: a standby, or set to be")
    if not _is_one_backend_each(*sessions):
        raise UnfitSessions(
            f"The server at {place} lends a session one backend after another, as a pooler in transaction mode does: "
            f"leases, locks and prepared statements do not hold there. {CURE}"
        )


def _open(wrapper: Any, place: str) -> Any:
    """Open the connection, and see that its session has what was asked for. Returns it as psycopg knows it."""
    try:
        wrapper.ensure_connection()
    except sqlstates.DATABASE_ERRORS as error:
        if sqlstates.NO_STARTUP_OPTIONS in sqlstates.loggable(error):
            raise UnfitSessions(f"The server at {place} takes no startup options, as a pooler. {CURE}") from error
        raise
    # Where a value comes from, and not the value, which the server writes in words of its own (120000 is 2min).
    ignored = _fetch_one(
        wrapper.connection,
        """SELECT array_agg(name ORDER BY name) FROM pg_settings
            WHERE name = ANY (%s) AND source <> 'client' OR name = ANY (%s) AND source <> 'session'""",
        lease.configured_parameters(wrapper),
        list(session_settings.told(wrapper)),
    )[0]
    if ignored:
        raise UnfitSessions(
            f"The server at {place} ignores what a worker asks of its session, as a pooler that drops startup options: "
            f"{', '.join(ignored)}. {CURE}"
        )
    return wrapper.connection


def _is_one_backend_each(claim: Any, writer: Any) -> bool:
    """Whether each of the two sessions keeps one backend, its own.

    A pool that lends the backend that was free last gives the second session that of the first one; a pool that lends
    them in turns gives the first session another one with its next statement.
    """
    mark, lock = token_hex(8), randbits(62)
    whose = "SELECT pg_backend_pid(), current_setting('onramp.session', true)"
    first = _fetch_one(claim, "SELECT pg_backend_pid(), set_config('onramp.session', %s, false)", mark)
    with writer.transaction():
        other = _fetch_one(writer, "SELECT pg_backend_pid(), pg_try_advisory_xact_lock(%s)", lock)
        if other == (first[0], True):
            return False  # at once: in a pool of one, the next statement would wait for the backend of this one
        locked_by_both = _fetch_one(claim, "SELECT pg_try_advisory_xact_lock(%s)", lock)
    seen = {_fetch_one(claim, whose) for _ in range(TIMES)}
    return seen == {first} and other[1] and locked_by_both == (False,)


def _fetch_one(session: Any, sql: str, *parameters: Any) -> tuple[Any, ...]:
    return tuple(session.execute(sql, parameters, prepare=False).fetchone())

"""SQLSTATES: what a database error means, and which parts of it may be logged.

`str(error)` is never logged: PostgreSQL quotes a statement's values there, or the user's name if it refuses a
connection. The class, the SQLSTATE, and the names of a table, column or constraint are not personal data.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from django.db import Error, OperationalError, connections

from workflows.errors import ClaimLost

# Django's errors, and psycopg's: a step's own connection is not wrapped, nor is Django's query for the time zone.
DATABASE_ERRORS = (Error, psycopg.Error)

# Errors that may pass with time (https://www.postgresql.org/docs/current/errcodes-appendix.html).
# Another session is in the way: serialization_failure, deadlock_detected, lock_not_available, query_canceled.
_BLOCKED = {"40001", "40P01", "55P03", "57014"}
# The server cannot do it now: read_only_sql_transaction (a failover), insufficient_resources, disk_full, out_of_memory,
# too_many_connections, admin_shutdown, crash_shutdown, cannot_connect_now, system_error, io_error. Not 53400: there the
# statement itself exceeds a limit.
_UNABLE = {"25006", "53000", "53100", "53200", "53300", "57P01", "57P02", "57P03", "58000", "58030"}
# The server has ended a step's own session: idle_in_transaction_session_timeout, transaction_timeout,
# idle_session_timeout. The next attempt opens another one.
_ENDED = {"25P03", "25P04", "57P05"}
# program_limit_exceeded: a listener elsewhere has filled the queue of NOTIFY, or a value is too large for an index.
# They look the same; the retry policy ends the second.
_LIMIT = {"54000"}
# A release is ahead of its migrations, or behind: undefined_column, undefined_table. If the name is misspelt, the
# step's retry policy ends it after a quarter of an hour.
_SCHEMA_MISMATCH = {"42703", "42P01"}
# feature_not_supported, if a migration has made a prepared statement stale ("cached plan must not change result type").
# The message may be in any language, but the server's function has one name.
_STALE_PLAN = ("0A000", "RevalidateCachedQuery")
# Neither 26000 nor 42P05: a pooler has lost a prepared statement, or kept another's. A retry might run the wrong one.
# connection_exception, and every SQLSTATE of that class.
_CONNECTION_CLASS = "08"

# A failed connection has no SQLSTATE. Words of libpq's message, or the server's, identify it.
NO_STARTUP_OPTIONS = "unsupported startup parameter"
_CAUSES = {
    "unsupported startup parameter": NO_STARTUP_OPTIONS,
    "Connection refused": "connection refused",
    "No such file or directory": "no server at this socket",
    "timeout": "timeout",
    "timed out": "timeout",
    "could not translate host name": "name not known",
    "failed to resolve host": "name not known",
    "Name or service not known": "name not known",
    "No route to host": "no route to the host",
    "Network is unreachable": "the network is unreachable",
    "the database system is": "the server is starting, stopping or recovering",
    "too many clients": "too many connections",
    "remaining connection slots": "too many connections",
    "authentication failed": "authentication failed",
    "no password supplied": "no password supplied",
    "pg_hba.conf": "refused by pg_hba.conf",
    "does not exist": "no such database or role",
    "server closed the connection": "the server closed the connection",
    "the server is read-only": "the server is read-only",
    "perhaps not on a standby": "committed here, but perhaps not on a standby",
    "passed nothing on": "the connection passed nothing on",
    "connection is lost": "the connection is lost",
    "connection is closed": "the connection is closed",
    "connection already closed": "the connection is closed",
    "SSL": "TLS failed",
}


def is_transient(error: BaseException) -> bool:
    """Whether a step's own database error may pass with time. The caller has shown that the engine's connections live.

    An OperationalError without an SQLSTATE comes from a step's own connection that was never made, or broke.
    """
    if not isinstance(error, DATABASE_ERRORS):
        return False
    state = sqlstate(error)
    if not state:
        return isinstance(error, OperationalError | psycopg.OperationalError)
    if state in _BLOCKED | _UNABLE | _ENDED | _LIMIT | _SCHEMA_MISMATCH or state.startswith(_CONNECTION_CLASS):
        return True
    return any((each.sqlstate, each.diag.source_function) == _STALE_PLAN for each in _postgresql_errors(error))


def is_statement_error(error: BaseException) -> bool:
    """Whether the server refuses the statement itself; engineers then need to know which one."""
    state = sqlstate(error)
    return bool(state) and state not in _BLOCKED | _UNABLE and not state.startswith((_CONNECTION_CLASS, "25", "57"))


def violates(error: BaseException, constraint: str) -> bool:
    """Whether the error, or one that it was raised from, reports a violation of this constraint."""
    return any(each.diag.constraint_name == constraint for each in _postgresql_errors(error))


def sqlstate(error: BaseException | None) -> str:
    """The SQLSTATE of the error, or of one that it was raised from; empty if there is none."""
    return next((each.sqlstate for each in _postgresql_errors(error) if each.sqlstate), "")


def is_refusal(error: BaseException) -> bool:
    """Whether a server that runs has refused a new connection: it has too many, say."""
    told = str(error)
    return "FATAL" in told and "the database system is" not in told


def loggable(error: BaseException) -> str:
    """What may be logged of an error: "NotNullViolation 23502 (workflows_wait.ahead)", "OperationalError: timeout"."""
    for each in _postgresql_errors(error):
        if not each.sqlstate:
            cause = next((cause for words, cause in _CAUSES.items() if words in str(each)), "")
            return f"{type(each).__name__}{': ' if cause else ''}{cause}"
        names = each.diag.constraint_name or ".".join(filter(None, (each.diag.table_name, each.diag.column_name)))
        return f"{type(each).__name__} {each.sqlstate}{f' ({names})' if names else ''}"
    if isinstance(error, ClaimLost):
        return f"ClaimLost: {error}" if str(error) else "ClaimLost"  # the message is ours
    return type(error.__cause__ or error).__name__


def host_port(alias: str) -> str:
    """Where a connection leads: "db.example:5432", without the database's name or the user's."""
    database = connections[alias].settings_dict
    return f"{database['HOST'] or 'the local socket'}:{database['PORT'] or 5432}"


def _postgresql_errors(error: BaseException | None) -> Iterator[psycopg.Error]:
    met: list[BaseException] = []
    while error is not None and error not in met:  # `raise error from error` makes a loop
        met.append(error)
        if isinstance(error, psycopg.Error):
            yield error
        error = error.__cause__

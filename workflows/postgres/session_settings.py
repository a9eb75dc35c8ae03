"""SESSION SETTINGS: the settings that each session gets when it is opened.

Startup options would not do. The server refuses an unknown one (PostgreSQL 15 has no `transaction_timeout`); one may
ask for less than the administrator does (`synchronous_commit = on` over `remote_apply`); and a pooler refuses them all.
The options in DATABASE_URL take precedence, except over FORMATS.
"""

from __future__ import annotations

from time import monotonic
from typing import Any, NamedTuple

from django.db import DEFAULT_DB_ALIAS
from django.db.backends.base.base import BaseDatabaseWrapper

from workflows.postgres import half_open
from workflows.postgres.wire import wire_of

# Seconds for connecting.
CONNECT_TIMEOUT = 3.0


_NOT_IN_URL = "source <> 'client'"


class Setting(NamedTuple):
    """A setting of the server. `gives_way` is SQL for whether `value` may replace the administrator's `setting`."""

    name: str
    value: str
    gives_way: str = _NOT_IN_URL


# How values are written, read and compared, and what a statement sees. Psycopg, Django and our SQL rely on these, so
# they override everything, and a reload of postgresql.conf does not change open sessions. (libpq sets client_encoding.
# We leave alone search_path, default_transaction_read_only, row_security and time limits. We do not depend on lc_*,
# xmloption, backslash_quote, default_transaction_deferrable or the planner's settings.)
FORMATS = [
    Setting(name, value, "true")
    for name, value in (
        ("DateStyle", "ISO, MDY"),
        ("IntervalStyle", "postgres"),
        ("TimeZone", "UTC"),
        ("extra_float_digits", "1"),
        ("bytea_output", "hex"),
        ("array_nulls", "on"),
        ("standard_conforming_strings", "on"),
        ("transform_null_equals", "off"),
        ("gin_fuzzy_search_limit", "0"),  # otherwise a search by an index would find only some rows
        ("default_transaction_isolation", "read committed"),  # each statement sees what others have committed
    )
]


# Committed data survives a crash of the server: a call's INTENT, and a submission that was answered with 202.
DURABLE = Setting("synchronous_commit", "on", f"{_NOT_IN_URL} AND setting <> 'remote_apply'")
# A claim's transaction lasts as long as its steps; the lease ends it. The setting exists since PostgreSQL 17.
NO_TRANSACTION_TIMEOUT = Setting("transaction_timeout", "0")
# A request that hangs in its transaction, or whose host has vanished, keeps its locks no longer than this. A live one
# sends statements milliseconds apart.
NO_IDLE_TRANSACTION = Setting("idle_in_transaction_session_timeout", "30s", f"{_NOT_IN_URL} AND setting = '0'")
# The server's log contains no values: neither the parameters of statements, nor the row that an error's DETAIL quotes.
# Most roles may set only one of the three; `server_log` reports the others.
NO_VALUES_LOGGED = [
    Setting(name, value, f"{_NOT_IN_URL} AND (context = 'user' OR has_parameter_privilege('{name}', 'SET'))")
    for name, value in (
        ("log_parameter_max_length", "0"),
        ("log_parameter_max_length_on_error", "0"),
        ("log_error_verbosity", "terse"),
    )
]

# PostgreSQL compiles a statement that the planner takes for a large one, at each run: that was 40 ms of a scrape of
# `/metrics`, for a statement that takes 3 ms.
NO_JIT = Setting("jit", "off")

_settings: dict[str, set[Setting]] = {}


def state(setting: Setting, *aliases: str) -> None:
    """Add a setting for these connections of this process, whenever they are opened from now on."""
    for alias in aliases:
        _settings.setdefault(alias, set()).add(setting)


def limit_idle_transactions() -> None:
    """For a process with short transactions: one that answers requests, or takes messages."""
    state(NO_IDLE_TRANSACTION, DEFAULT_DB_ALIAS)


def tell(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Set up a session that was just opened: the receiver of `connection_created`. If that fails, close it."""
    wrapper: Any = connection
    if wrapper.vendor != "postgresql":  # another database of the project
        return
    try:
        with wire_of(wrapper.connection).answers_until(monotonic() + CONNECT_TIMEOUT):
            cursor = wrapper.connection.execute(f"{sql(wrapper.alias)}; {half_open.OUR_BACKEND}")
            wrapper.told_settings = dict(cursor.fetchall())
            wrapper.told_again = "".join(f"; SET {name} = '{value}'" for name, value in wrapper.told_settings.items())
            cursor.nextset()
            half_open.watch(wrapper, half_open.Backend(*cursor.fetchone()))
    except BaseException:
        wrapper.close()
        raise


def sql(alias: str) -> str:
    """The statement that sets up a session of this connection; it returns the names and values that were set.

    It reads the server's settings once, which takes a millisecond.
    """
    asked = [*FORMATS, DURABLE, NO_JIT, *NO_VALUES_LOGGED, *sorted(_settings.get(alias, ()))]
    values = " ".join(f"WHEN '{name}' THEN '{value}'" for name, value, _ in asked)
    wanted = " ".join(f"WHEN '{name}' THEN {gives_way}" for name, _, gives_way in asked)
    return (
        f"SELECT name, set_config(name, CASE name {values} END, false) FROM pg_settings"  # noqa: S608 (all is ours)
        f" WHERE CASE name {wanted} ELSE false END"
    )


def told(connection: BaseDatabaseWrapper) -> dict[str, str]:
    """The settings that the session of this connection got, by name."""
    return getattr(connection, "told_settings", {})


def again_sql(connection: BaseDatabaseWrapper) -> str:
    """SQL that repeats the settings after a RESET ALL, which forgets them."""
    return getattr(connection, "told_again", "")

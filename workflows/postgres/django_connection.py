"""The parts of Django's database connection that we, here and in `round_trips`, use without a promise.

tests/config/test_foreign_parts.py names them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

_known = threading.local()


def wrapper_of(alias: str) -> Any:
    """Django's connection of this thread. Its own lookup takes six calls, and each claim needs ten."""
    try:
        return getattr(_known, alias)
    except AttributeError:
        setattr(_known, alias, connections[alias])
    return getattr(_known, alias)


def replace(alias: str, wrapper: BaseDatabaseWrapper) -> None:
    """Make this thread use another connection."""
    connections[alias] = wrapper
    setattr(_known, alias, wrapper)


def djangos_errors(connection: BaseDatabaseWrapper) -> AbstractContextManager[None]:
    """Turns psycopg's errors into Django's in this block."""
    return connection.wrap_database_errors


def must_roll_back(connection: BaseDatabaseWrapper) -> bool:
    """Whether Django's transaction can only be rolled back."""
    return connection.needs_rollback or was_closed(connection)


def was_closed(connection: BaseDatabaseWrapper) -> bool:
    """Whether `close()` was called within the transaction. A connection that breaks is not closed."""
    return connection.closed_in_transaction


def wrap_hooks(connection: BaseDatabaseWrapper, call: Callable[[Callable[[], object]], object]) -> int:
    """Make `call` call each on_commit function of the transaction; return how many there are."""
    if not connection.run_on_commit:
        return 0
    hooks: list[Any] = [(each[0], partial(call, each[1]), *each[2:]) for each in connection.run_on_commit]
    connection.run_on_commit = hooks
    return len(hooks)


def trust(connection: Any) -> None:
    """Make Django skip the connection's test before its next statement: it might continue on a new one."""
    connection.health_check_done = True


def name_savepoint(connection: Any) -> str:
    """Register a savepoint with Django, in a block of `atomic(savepoint=False)`; Django then ends it."""
    connection.savepoint_state += 1
    name = connection.savepoint_ids[-1] = f"onramp_{connection.savepoint_state}"
    return str(name)


def drop_savepoint(connection: Any) -> None:
    """Let Django forget a savepoint that was never made, so that it releases nothing."""
    connection.savepoint_ids[-1] = None


def execute_watched(connection: BaseDatabaseWrapper, execute: Callable[..., None], sql: str, parameters: Any) -> None:
    """Call `execute` through the `execute_wrapper`s, as Django's own cursor does."""
    for wrapper in reversed(connection.execute_wrappers):
        execute = partial(wrapper, execute)
    execute(sql, parameters, False, {"connection": connection, "cursor": None})

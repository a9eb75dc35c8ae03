"""ROLES: what is tested runs in the database as its role, and what a test prepares as the owner. `make test-roles`.

A worker is the class `Worker`; the console, a request of Django's test client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import psycopg
from django.db import connection, connections
from django.db.backends.signals import connection_created
from django.test.client import ClientHandler
from psycopg.pq import TransactionStatus

from workflows.engine.loop import Worker
from workflows.features.outbox.relay import Relay
from workflows.management import roles

_roles: list[str] = []


def apply(names: roles.Names) -> None:
    """Give the roles their rights in the test database. In a test's transaction they are gone with it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableowner FROM pg_tables WHERE tablename = 'workflows_workflow'")
        (owner,) = cursor.fetchone()
        for statement in roles.sql(names._replace(migrator=owner), "public"):
            if not connection.in_atomic_block or statement not in ("BEGIN", "COMMIT"):
                cursor.execute(statement)
        cursor.execute("RESET ROLE")


def run_as_roles() -> None:
    """From now on, in this process."""
    with connection._nodb_cursor() as one_at_a_time:
        one_at_a_time.execute("SELECT pg_advisory_lock(hashtext('roles'))")  # the session ends with this block
        apply(roles.Names())
    for kind, names, role in (
        (Worker, ("run", "process_next", "process_from_sources", "run_maintenance"), "onramp_worker"),
        (Relay, ("run", "send_next"), "onramp_worker"),
        (ClientHandler, ("__call__",), "onramp_console"),
    ):
        for name in names:
            setattr(kind, name, _as(role, getattr(kind, name)))
    connection_created.connect(_tell, weak=False)


def _as(role: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        with _role(role):
            return function(*args, **options)

    return run


@contextmanager
def _role(role: str) -> Iterator[None]:
    _roles.append(role)
    _tell_all()
    try:
        yield
    finally:
        _roles.pop()
        _tell_all()


def _tell_all() -> None:
    for wrapper in connections.all(initialized_only=True):
        _tell(wrapper)


def _tell(connection: Any, **_: Any) -> None:
    raw = connection.connection
    if raw and not raw.closed and raw.info.transaction_status in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
        psycopg.Cursor(raw).execute(f"SET ROLE {_roles[-1] if _roles else 'NONE'}", prepare=False)

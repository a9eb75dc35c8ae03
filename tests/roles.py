"""ROLES: what is tested runs in the database as its role, and what a test prepares as the owner. `make test-roles`.

In this process a worker is the class `Worker`, the intake its threads and its `Link`, and the console a request of
Django's test client. Processes sign in as their role (`servers.url_of`), which the server has to trust.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from threading import current_thread
from typing import Any

from django.db import connection, connections
from django.db.backends.signals import connection_created
from django.test.client import ClientHandler
from psycopg.pq import TransactionStatus

from tests import servers
from workflows.engine.loop import Worker
from workflows.features.outbox.relay import Relay
from workflows.features.queues.submissions import Door
from workflows.intake import connection as link
from workflows.management import roles

# Of what runs in this thread: "NONE" is the owner.
_role = ContextVar("role", default="NONE")

INTAKE, WORKER, CONSOLE = roles.Names()[1:4]
PROCESSES = {
    "config.intake": INTAKE,
    "config.wsgi": CONSOLE,
    **dict.fromkeys(("runworker", "relayoutbox", "consumekafka", "consumesqs"), WORKER),
}


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
        with connection.cursor() as cursor:
            for role in (INTAKE, WORKER, CONSOLE):
                cursor.execute(f"ALTER ROLE {role} LOGIN")
    servers.ROLES.update(PROCESSES)
    for kind, names, role in (
        (Worker, ("run", "process_next", "process_from_sources", "run_maintenance"), WORKER),
        (Relay, ("run", "send_next"), WORKER),
        (Door, ("enter",), WORKER),
        (ClientHandler, ("__call__",), CONSOLE),
    ):
        for name in names:
            setattr(kind, name, _as(role, getattr(kind, name)))
    connection_created.connect(_tell, weak=False)
    of_django = link._parameters
    link._parameters = lambda: of_django() | {"user": INTAKE if _role.get() == "NONE" else _role.get()}


def _as(role: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        before = _role.set(role)
        try:
            _tell_all()
            return function(*args, **options)
        finally:
            _role.reset(before)
            _tell_all()

    return run


def _tell_all() -> None:
    for wrapper in connections.all(initialized_only=True):
        _tell(wrapper)


def _tell(connection: Any, **_: Any) -> None:
    role = INTAKE if current_thread().name.startswith("intake") else _role.get()
    raw = connection.connection
    if raw and not raw.closed and raw.info.transaction_status in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
        raw.pgconn.exec_(f"SET ROLE {role}".encode())  # past what tests put in the way of statements

"""What the engine's tests share: definitions made on the spot, submissions, and a worker to run them with."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from threading import Thread
from time import sleep
from typing import Any, TypeVar

import psycopg
import pytest
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from pydantic import BaseModel

from workflows.definition import Retry, Step, WorkflowDefinition, WorkflowStep, definitions
from workflows.engine import maintenance
from workflows.engine.loop import Worker
from workflows.features.installed import FEATURES
from workflows.models import Attempt, Event, ManualTask, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.postgres.statements import execute
from workflows.signals import waking
from workflows.stop_flag import Flag
from workflows.wording import length

T = TypeVar("T")

# Real transactions on both connections: `pytestmark = ENGINE` in a module of tests.
ENGINE = [
    pytest.mark.django_db(transaction=True, databases=["default", "attempt_log"]),
    pytest.mark.usefixtures("engine"),
]


class Context(BaseModel):
    """The context of test definitions: a few fields of different types."""

    number: int | None = None
    text: str | None = None
    key: uuid.UUID | None = None
    tags: list[str] = []


def define(
    steps: Sequence[Step | WorkflowStep],
    *,
    retry: Retry | None = None,
    expires_after: timedelta | None = None,
    retired: Sequence[str] = (),
    context_class: type[BaseModel] | None = None,
    **options: Any,
) -> None:
    """Make `steps` the definition "test", the only one; the fixture of tests/workflows/conftest.py forgets it."""
    global DEFINITION
    DEFINITION = WorkflowDefinition(
        name="test",
        steps=steps,
        context_class=context_class or Context,
        retry=retry,
        expires_after=expires_after,
        retired=retired,
        **options,
    )
    definitions.cache_clear()


DEFINITION = WorkflowDefinition(name="test", steps=[], context_class=Context)


def submit(payload: dict[str, Any] | None = None, **fields: Any) -> Workflow:
    """Store a workflow of the type "test"."""
    values = {"workflow_type": "test", "idempotency_key": uuid.uuid4(), "payload": payload or {}, **fields}
    with transaction.atomic():
        pk = Workflow.objects.create(**values).pk
    return Workflow.objects.get(pk=pk)


def worker(**options: Any) -> Worker:
    return Worker(**{"name": "test-host:1", "features": FEATURES, "stopping": Flag(), **options})


def work(workflow: Workflow, **options: Any) -> Workflow:
    """Let a worker process what is due once; return `workflow` as it is then."""
    assert worker(**options).process_next(), "nothing was due"
    return Workflow.objects.get(pk=workflow.pk)


def make_due(workflow: Workflow) -> None:
    """Let the back-off, or the wait, be over."""
    Workflow.objects.filter(pk=workflow.pk).update(invisible_until=workflow.created_at)


def due_again(workflow: Workflow) -> None:
    """Let the back-off be over just now."""
    Workflow.objects.filter(pk=workflow.pk).update(invisible_until=ClockTimestamp())


def again(workflow: Workflow) -> Workflow:
    """Let it be due, and a worker process it once more."""
    make_due(workflow)
    return work(workflow)


def seconds_until_due(workflow: Workflow) -> float:
    """By the clock of the server."""
    with another_connection() as other:
        due_in = "extract(epoch FROM invisible_until - clock_timestamp())::float"
        ((seconds,),) = other.execute(f"SELECT {due_in} FROM workflows_workflow WHERE id = %s", [workflow.pk])
    return float(seconds)


def expire(workflow: Workflow) -> None:
    """Let the deadline of its wait have passed."""
    with connection.cursor() as cursor:
        for table, column in (("wait", "deadline"), ("manualtask", "expires_at")):
            past = f"{column} = clock_timestamp() - interval '1 second'"
            cursor.execute(f"UPDATE workflows_{table} SET {past} WHERE workflow_id = %s", [workflow.pk])
    make_due(workflow)


def due_in(task: ManualTask) -> str:
    """How long after it was asked a question is overdue."""
    assert task.due_at
    return length(round((task.due_at - task.created_at).total_seconds()))


def last_attempt(workflow: Workflow) -> Attempt:
    return Attempt.objects.filter(workflow=workflow).latest("number")


def outcomes(workflow: Workflow) -> dict[str, str]:
    """What each step of the last attempt did."""
    return {entry["step"]: entry["outcome"] for entry in last_attempt(workflow).steps}


def kinds(workflow: Workflow) -> list[str]:
    """The kinds of its events, oldest first."""
    return list(Event.objects.filter(workflow=workflow).order_by("id").values_list("kind", flat=True))


@contextmanager
def another_connection(**other: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of somebody else's to the same database, in autocommit; or with another `dbname`."""
    parameters = connection.get_connection_params()
    parameters.pop("cursor_factory", None)
    parameters.pop("context", None)
    with psycopg.connect(**{**parameters, **other}, autocommit=True) as session:
        yield session


@contextmanager
def a_column_ahead(table: str, *, drop: bool = True) -> Iterator[None]:
    """The next release's migration, before its workers: a column that this release's statements do not fill.

    Without `drop` it stays, with a default, for workers that run on.
    """
    with another_connection() as other:
        other.execute(f"ALTER TABLE {table} ADD COLUMN ahead int NOT NULL DEFAULT 1")
        other.execute(f"ALTER TABLE {table} ALTER COLUMN ahead DROP DEFAULT")
        try:
            yield
        finally:
            connections.close_all()
            other.execute(f"ALTER TABLE {table} {'DROP COLUMN ahead' if drop else 'ALTER COLUMN ahead SET DEFAULT 1'}")


@contextmanager
def sent(alias: str = DEFAULT_DB_ALIAS) -> Iterator[list[str]]:
    """The statements that are sent on this connection meanwhile."""
    statements: list[str] = []

    def look(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return execute(sql, *rest)

    with connections[alias].execute_wrapper(look):
        yield statements


@contextmanager
def at(statement: str, do: Callable[[], T], *, alias: str = DEFAULT_DB_ALIAS, before: bool = True) -> Iterator[list[T]]:
    """Do it right before (or after) this statement is sent on the connection, once; yields what came of it."""
    happened: list[T] = []
    met: list[str] = []

    def look(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if statement not in sql or met:
            return execute(sql, *rest)
        met.append(sql)
        if before:
            happened.append(do())
        result = execute(sql, *rest)
        if not before:
            happened.append(do())
        return result

    with connections[alias].execute_wrapper(look):
        yield happened
    assert met, f"{statement} was never sent"


def is_locked(workflow: Workflow) -> bool:
    """Whether somebody holds the row just now, seen from another connection."""
    with another_connection() as other:
        sql = "SELECT 1 FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE SKIP LOCKED"
        return other.execute(sql, [workflow.pk]).fetchone() is None


def terminate(alias: str) -> None:
    """Let the server end one of our two connections, as an administrator, a failover or a timeout does."""
    pid = connections[alias].connection.info.backend_pid
    with another_connection() as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


# Who waits for a lock in this database: the lock itself, on a row's transaction, names no database.
BLOCKED = """SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid)
              WHERE NOT granted AND datname = current_database()"""


def until_blocked(count: int = 1) -> None:
    """Come back when somebody waits for a lock, or so many do."""
    with another_connection() as other:
        for _ in range(3000):
            if len(other.execute(BLOCKED).fetchall()) >= count:
                return
            sleep(0.01)
    raise AssertionError("nobody waits for a lock")


def with_its_connections(what: Callable[[], T]) -> T:
    """Do it in the thread that calls, which ends with it: its connections are closed."""
    try:
        return what()
    finally:
        connections.close_all()


def draining() -> Thread:
    """A worker, in a thread of its own, that drains the queue; to be joined with a timeout."""
    thread = Thread(target=with_its_connections, args=[lambda: worker().run(drain=True)])
    thread.start()
    return thread


def elsewhere(what: Callable[[], T]) -> T:
    """Do it on another connection to the database, and come back when it is done."""
    results: list[T] = []
    thread = Thread(target=with_its_connections, args=[lambda: results.append(what())])
    thread.start()
    thread.join()
    return results[0]


def do_maintenance() -> None:
    """Do every maintenance task now, to its end; but for those that somebody else is just doing."""
    of_worker = maintenance.Maintenance(FEATURES)
    of_worker.make_known()
    execute(
        """UPDATE workflows_chore SET due_at = now(), after = 0
            WHERE name IN (SELECT name FROM workflows_chore FOR NO KEY UPDATE SKIP LOCKED)""",
        [],
    )
    of_worker.run(seconds=60)  # until none is due


def do_chore(name: str, after: int = 0) -> waking.Slice:
    """Do one slice of this maintenance task."""
    return maintenance.do_slice(maintenance.tasks_of(FEATURES)[name], after)


def sweep() -> int:
    """How many maintenance wakes of those that have a signal, or whose children have ended."""
    woken = 0
    for do in (waking.wake_by_new_signals, waking.wake_by_signals, waking.wake_parents):
        each = do(0)
        while each.changed or each.next:
            woken += each.changed
            each = do(each.next)
    return woken


@contextmanager
def no_maintenance() -> Iterator[None]:
    """Somebody else is always just doing maintenance: what the two wakers miss stays lost."""
    elsewhere(maintenance.Maintenance(FEATURES).make_known)
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_chore FOR NO KEY UPDATE")
        yield

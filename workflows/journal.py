"""The journal: a second connection, in autocommit, for the facts that must outlive a rollback or a crash.

**The fence.** This connection cannot feel whether the claim still holds its row, so it asks: what may only be written
by the holder is written `WHERE pg_xact_status(<the claim's transaction>) = 'in progress'`, in the same statement.
Nothing written means that the row is no longer ours.

**Losing the journal is losing the claim**: it is opened before the claim, and within an attempt never anew. A server
that restarted may have given the claim's transaction id to another transaction, which would then look like our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from django.db import InterfaceError, OperationalError, connections

from workflows.errors import ClaimLost
from workflows.models import Attempt, Workflow

ALIAS = "journal"

# Put into a statement's WHERE; its parameter is the attempt's `claim_xid`.
FENCE = "pg_xact_status(%s::text::xid8) = 'in progress'"


@dataclass(slots=True)
class OpenAttempt:
    """An attempt in progress: its row's id and number, and the transaction that holds the workflow."""

    id: int
    number: int
    workflow_id: int
    claim_xid: str
    steps: list[dict[str, Any]] = field(default_factory=list)
    deferred: tuple[str, list[Any]] | None = None  # a statement that may wait for the next one: see defer
    found_open: bool = False  # the attempt before this one had never been closed


_current: ContextVar[OpenAttempt | None] = ContextVar("current_attempt", default=None)


def connect() -> None:
    """Open the connection unless it is open. Before the claim begins, never after."""
    connections[ALIAS].ensure_connection()


def execute(sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Run one statement on the journal, its parameters beside it and not in its text, and return its rows.

    Raises ClaimLost when the connection is gone, or a lock is not given within the session's `lock_timeout`.
    """
    try:
        with connections[ALIAS].cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []
    except (OperationalError, InterfaceError) as error:
        raise ClaimLost(f"the journal failed with {type(error).__name__}") from error


def defer(attempt: OpenAttempt, sql: str, parameters: list[Any]) -> None:
    """Keep a statement back, so that the next one of the attempt can be one statement, and one commit, with it.

    Whoever does anything else next, calls `flush` first. It is also written when the claim is lost: only what is true
    whoever holds the row may be deferred.
    """
    flush(attempt)
    attempt.deferred = (sql, parameters)


def flush(attempt: OpenAttempt) -> None:
    """Write what was deferred. When the journal is lost just then, it stays deferred, for `close_as_lost`."""
    if attempt.deferred:
        execute(*attempt.deferred)
        attempt.deferred = None


def execute_with_deferred(attempt: OpenAttempt, sql: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
    """Run one statement together with what was deferred, which must be an UPDATE of other rows."""
    if attempt.deferred:
        before, before_parameters = attempt.deferred
        sql, parameters = f"WITH before AS ({before}) {sql}", [*before_parameters, *parameters]
    rows = execute(sql, parameters)
    attempt.deferred = None
    return rows


def open_attempt(workflow: Workflow, *, claim_xid: str, worker: str, release: str) -> OpenAttempt:
    """Write that an attempt begins; one that is still open from before has no worker any more: it vanished."""
    rows = execute(
        f"""
        WITH vanished AS (
            UPDATE workflows_attempt SET outcome = 'vanished', closed_at = clock_timestamp()
             WHERE workflow_id = %s AND closed_at IS NULL AND {FENCE} RETURNING id)
        INSERT INTO workflows_attempt (workflow_id, number, worker, release)
        SELECT %s, (SELECT coalesce(max(number), 0) + 1 FROM workflows_attempt WHERE workflow_id = %s), %s, %s
         WHERE {FENCE}
        RETURNING id, number, EXISTS (SELECT FROM vanished)
        """,  # noqa: S608 (FENCE is ours)
        [workflow.pk, claim_xid, workflow.pk, workflow.pk, worker, release, claim_xid],
    )
    if not rows:
        raise ClaimLost("the claim ended before its attempt was opened")
    (attempt_id, number, found_open), *_ = rows
    return OpenAttempt(attempt_id, number, workflow.pk, claim_xid, found_open=found_open)


def prove(attempt: OpenAttempt) -> None:
    """Raise ClaimLost unless the claim's transaction is still in progress, and the journal alive to say so."""
    if execute(f"SELECT {FENCE}", [attempt.claim_xid]) != [(True,)]:
        raise ClaimLost("the claim's transaction has ended")


def close_as_lost(attempt: OpenAttempt) -> None:
    """Close an attempt whose claim was lost, on a connection opened since.

    Unless the claim did commit after all, its answer lost on the way: then the attempt is closed already. Should the
    commit be on its way just now, this waits for the row that it has locked.
    """
    flush(attempt)
    execute(
        """UPDATE workflows_attempt SET outcome = %s, closed_at = clock_timestamp(), steps = %s
            WHERE id = %s AND closed_at IS NULL""",
        [Attempt.Outcome.LOST, json.dumps(attempt.steps), attempt.id],
    )


@contextmanager
def current(attempt: OpenAttempt) -> Iterator[None]:
    """Let the waits find `attempt` while its steps run: a step is given its workflow and context only."""
    token = _current.set(attempt)
    try:
        yield
    finally:
        _current.reset(token)


def attempt_of(workflow: Workflow) -> OpenAttempt:
    """The attempt that is running `workflow` in this process. RuntimeError when there is none."""
    attempt = _current.get()
    if attempt is None or attempt.workflow_id != workflow.pk:
        raise RuntimeError("Waits work inside a step that a worker runs; here no worker runs this workflow.")
    return attempt

"""ENTER: a submission becomes a row. One INSERT; everything else happens later, in a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.db.models import BooleanField
from django.db.models.expressions import RawSQL

from workflows.bounded import DatabaseUnavailable, ask
from workflows.definition import WorkflowDefinition, definitions
from workflows.jsonb import Document
from workflows.models import State, Workflow

# The target is named: without it ON CONFLICT would swallow the violation of any other constraint too.
_INSERT = """
    INSERT INTO workflows_workflow
           (idempotency_key, workflow_type, submitted_by, queue, linking_id, payload, expires_at)
    VALUES (%s, %s, %s, %s, %s, %s, statement_timestamp() + %s::interval)
    ON CONFLICT (idempotency_key) DO NOTHING RETURNING id
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a submission stands. `replayed`: it had been sent before."""

    id: int
    status: str
    state: str
    replayed: bool


class KeyTaken(Exception):
    """The idempotency key is another client's."""


class KeyReused(Exception):
    """The client has used this idempotency key before, for something else."""


def submission_definition() -> WorkflowDefinition:
    """The definition that a submission enters."""
    name: str = settings.SUBMISSION_WORKFLOW
    if name not in definitions():
        raise ImproperlyConfigured(f"SUBMISSION_WORKFLOW is {name!r}, which no definition in WORKFLOWS is called.")
    return definitions()[name]


def enter(definition: WorkflowDefinition, *, idempotency_key: UUID, payload: Document, submitted_by: str) -> Entry:
    """Store a submission unless its key is there already; say where it stands.

    The key's unique constraint is the whole deduplication: the insert is attempted, not looked up first, and only a
    conflict costs a second statement. Repeatable, so it survives a connection that breaks before the answer. Raises
    KeyTaken, KeyReused, DatabaseUnavailable, and DataError for what `jsonb` did not foresee.
    """
    row = (
        idempotency_key,
        definition.name,
        submitted_by,
        definition.queue,
        linking_id_of(payload.value, definition),
        payload.text,
        definition.expires_after,
    )
    inserted = ask(lambda: _fetch_one(_INSERT, row))
    if inserted is not None:
        return Entry(inserted[0], Workflow.Status.PENDING, State.QUEUED, replayed=False)
    # A new statement: this one's snapshot would not show the row that won.
    return ask(lambda: _replay(definition, idempotency_key, payload, submitted_by))


def linking_id_of(payload: dict[str, Any], definition: WorkflowDefinition) -> str | None:
    """The field that the definition names, if it is there and fits its column. What it should be, a step says."""
    value: Any = payload
    for name in filter(None, definition.linking_id.split(".")):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) and 0 < len(value) <= 200 else None


def _replay(definition: WorkflowDefinition, key: UUID, payload: Document, submitted_by: str) -> Entry:
    same = RawSQL("workflow_type = %s AND payload = %s::jsonb", [definition.name, payload.text], BooleanField())
    found = (
        Workflow.objects.with_state()
        .filter(idempotency_key=key)
        .annotate(same=same)
        .values_list("id", "status", "state", "submitted_by", "same")
    )
    row = _fetch_one(*found.query.sql_with_params())
    if row is None:  # it was there a moment ago, and has been deleted
        raise DatabaseUnavailable
    workflow_id, status, state, owner, same_payload = row
    if owner != submitted_by:
        raise KeyTaken
    if not same_payload:
        raise KeyReused
    return Entry(workflow_id, status, state, replayed=True)


def _fetch_one(sql: str, parameters: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Run one statement with its parameters beside it, not in it.

    Django's cursor writes them into the statement's text, and PostgreSQL's log and pg_stat_activity show that text:
    a payload must not be there.
    """
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        return cursor.execute(sql, parameters).fetchone()

"""Waiting for other workflows: start many, and go on when all have finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid5

from pydantic_core import to_json

from workflows.definition import WorkflowDefinition, definitions
from workflows.models import Wait, Workflow
from workflows.postgres.jsonb import as_json
from workflows.sealing import payloads
from workflows.search import search_keys
from workflows.signals import store
from workflows.state import attempt_log
from workflows.state.attempt_log import FENCE, OpenAttempt
from workflows.waits.declared import require_declared, withdraw_questions
from workflows.waits.wait import (
    INSERT_WAIT,
    WaitError,
    WaitExpired,
    WaitRow,
    ensure_text,
    expire,
    find,
    insert_parameters,
    row_or_claim_lost,
    suspension,
    with_outcome,
    write,
)


@dataclass(frozen=True, slots=True)
class Child:
    """A workflow to start: its definition's name, its input, and its key for the parent (by default its index)."""

    workflow_type: str
    payload: Mapping[str, Any]
    key: str = ""


@dataclass(frozen=True, slots=True)
class ChildOutcome:
    """How a child finished: COMPLETE with its context, or FAILED with an error's code and message (or `cancelled`).

    A failed child is a value: the parent decides what that means.
    """

    key: str
    workflow_id: int
    status: str
    context: dict[str, Any] = field(default_factory=dict)
    cancelled: bool = False
    error_code: str = ""
    error_message: str = ""

    @property
    def completed(self) -> bool:
        return self.status == Workflow.Status.COMPLETE


class UnknownChild(WaitError):
    """No definition has the name of a child that is to be started."""

    def __init__(self, workflow_type: str) -> None:
        super().__init__(f"No definition in WORKFLOWS is called {workflow_type!r}.")
        self.workflow_type = workflow_type


def wait_for_children(
    workflow: Workflow, name: str, children: Iterable[Child], *, timeout: timedelta, formerly: str = ""
) -> list[ChildOutcome]:
    """Start workflows, and go on only when all have finished. Returns their outcomes, in the given order.

    `name` is the wait's identity in this workflow. The first call starts the children, in one statement with the wait;
    later attempts start none, whatever they pass. As many run at a time as their definition's queue has workers.
    A wait that is renamed says its first name as `formerly`. Else it would start them a second time: a workflow that
    has children of a wait which its steps no longer meet starts no others before a person says that it is right.

    Each child has a key, unique among them. `timeout` runs from the first call. Raises WaitExpired if not all have
    finished in time; the children go on. They are cancelled, and then retried, with this workflow. When a person
    retries a failed parent, it reads again how its children finished, and starts only those with new keys.
    """
    attempt = attempt_log.attempt_of(workflow)
    name = formerly or name  # under its first name every release knows it
    ensure_text("The name of a wait", name, longest=200)
    attempt.joined.append(name)
    wait = find(attempt, Wait.Kind.CHILDREN, name)
    if wait:
        withdraw_questions(workflow, _undeclared(name))
    else:
        _require_no_others(attempt, workflow, name)
        wait = _start(attempt, workflow, name, list(children), timeout)
    if not wait.outcome:
        wait = _join(attempt, name, wait) or expire(attempt, wait)
    match wait.outcome:
        case "ended":
            attempt.told += [outcome["context"] for outcome in wait.result["children"]]
            return [ChildOutcome(**outcome) for outcome in wait.result["children"]]
        case "expired":
            raise WaitExpired(f"Not all workflows of {name} finished in time.", code="wait_expired", wait_id=wait.id)
    raise suspension(attempt, wait, _waiting_for(name), [store.child_signal(name)])


def _waiting_for(name: str) -> str:
    return f"the workflows that it has started ({name})"


def _require_no_others(attempt: OpenAttempt, workflow: Workflow, name: str) -> None:
    """Suspend while the workflow has children of a wait that this attempt has not met, which may be this one."""
    others = attempt_log.execute(
        """SELECT DISTINCT parent_wait FROM workflows_workflow
            WHERE parent_id = %(workflow_id)s AND parent_wait <> ALL (%(joined)s) ORDER BY 1""",
        {"workflow_id": attempt.workflow_id, "joined": attempt.joined},
    )
    for (other,) in others:
        require_declared(
            workflow,
            _undeclared(other),
            waiting_for=f"a release that waits for the workflows of {other}, which it has started",
            question=f"Is it right that this release starts the workflows of {name}, and no longer waits for {other}?",
            facts={
                "What we know": f"It has started the workflows of {other}; no step of this release waited for them.",
                "What may be wrong": f"The wait {other} was renamed, and its workflows would be started a second time.",
            },
            should=f"this release should wait for {other}",
        )


def _undeclared(name: str) -> str:
    return f"undeclared wait:{name}"[:190]  # a column has 200 characters, and the question's name is longer


def _start(attempt: OpenAttempt, workflow: Workflow, name: str, children: list[Child], timeout: timedelta) -> WaitRow:
    """Make the wait and its children in one statement.

    The wait's row comes first: of two workers that start the children at once, one waits for the other's wait and
    starts none. So they do not deadlock, although children come in the given order. A retry of the parent makes a new
    wait, and finds the existing children by their keys.
    """
    if len(store.child_signal(name)) > 200:
        raise WaitError("The name of a wait for children is too long for the signal of their end.")
    rows = [_row(workflow, name, child, child.key or str(index)) for index, child in enumerate(children)]
    if twice := [key for key, count in Counter(row["child_key"] for row in rows).items() if count > 1]:
        raise WaitError(f"{len(twice)} keys of children are used twice, the first is {twice[0]!r}.")
    started = write(
        attempt,
        f"""
        WITH wait AS ({INSERT_WAIT} RETURNING id, deadline),
        started AS (
            INSERT INTO workflows_workflow (
                   idempotency_key, workflow_type, queue, tenant, linking_id, payload, expires_at,
                   parent_id, parent_wait, child_key, given_request_id, priority, traceparent)
            SELECT idempotency_key, workflow_type, queue, %(tenant)s, linking_id, payload,
                   statement_timestamp() + make_interval(secs => expires_after), %(workflow_id)s, %(name)s, child_key,
                   %(request_id)s, priority, %(traceparent)s
              FROM wait, ROWS FROM (jsonb_to_recordset(%(children)s::jsonb) AS (
                   workflow_type text, queue text, linking_id text, payload jsonb, expires_after float,
                   child_key text, idempotency_key uuid, priority smallint)) WITH ORDINALITY child
             ORDER BY ordinality
            ON CONFLICT (parent_id, parent_wait, child_key) WHERE parent_id IS NOT NULL DO NOTHING
            RETURNING id, child_key),
        keyed AS (
            INSERT INTO workflows_searchkey (hash, workflow_id, key_id)
            SELECT decode(hash, 'hex'), id, %(search_key_id)s
              FROM started
              JOIN jsonb_to_recordset(%(children)s::jsonb) AS child (child_key text, search_hashes jsonb)
                   USING (child_key),
                   jsonb_array_elements_text(search_hashes) AS hash)
        SELECT id, deadline, deadline <= clock_timestamp(), deadline FROM wait
        """,  # noqa: S608 (INSERT_WAIT is ours)
        **insert_parameters(attempt, Wait.Kind.CHILDREN, name, _waiting_for(name), timeout),
        tenant=workflow.tenant,
        request_id=workflow.request_id,
        traceparent=attempt.trace.traceparent() if attempt.trace else "",
        children=to_json(rows).decode(),
        search_key_id=search_keys.keys()[0].id,
    )
    return WaitRow(*row_or_claim_lost(started))


def _row(parent: Workflow, wait: str, child: Child, key: str) -> dict[str, Any]:
    definition = _definition_of(child)
    payload = as_json(child.payload)
    ensure_text("A child's key", key, longest=200)
    # Not random: a child whose start was lost by a restore must make its calls under the same keys again.
    idempotency_key = uuid5(parent.idempotency_key, to_json([wait, key]).decode())
    return {
        "workflow_type": definition.name,
        "queue": definition.queue,
        "priority": definition.priority,
        "linking_id": definition.linking_id_in(payload),
        "search_hashes": [each.hex() for each in search_keys.hashes_of(definition, payload)],
        "payload": payloads.seal(definition, payload, idempotency_key),
        "expires_after": definition.expires_after and definition.expires_after.total_seconds(),
        "child_key": key,
        "idempotency_key": str(idempotency_key),
    }


def _definition_of(child: Child) -> WorkflowDefinition:
    if child.workflow_type not in definitions():
        raise UnknownChild(child.workflow_type)
    return definitions()[child.workflow_type]


def _join(attempt: OpenAttempt, name: str, wait: WaitRow) -> WaitRow | None:
    """Record how the children finished, if all have.

    One statement has one snapshot: it sees the end of each child whose signal it closes. An open signal would wake the
    workflow again and again if a person has retried that child since.
    """
    rows = write(
        attempt,
        f"""
        WITH closed AS (
            UPDATE workflows_signal SET closed_at = clock_timestamp()
             WHERE workflow_id = %(workflow_id)s AND name = %(signal)s AND closed_at IS NULL AND {FENCE})
        UPDATE workflows_wait SET outcome = 'ended', resolved_at = clock_timestamp(), result = jsonb_build_object(
               'children', (
                    SELECT coalesce(jsonb_agg(jsonb_build_object(
                               'key', child_key, 'workflow_id', id, 'status', status, 'context', context,
                               'cancelled', cancelled_at IS NOT NULL,
                               'error_code', last_error_code, 'error_message', last_error_message) ORDER BY id), '[]')
                      FROM workflows_workflow WHERE parent_id = %(workflow_id)s AND parent_wait = %(name)s))
         WHERE id = %(wait_id)s AND outcome = '' AND {FENCE} AND NOT EXISTS (
            SELECT FROM workflows_workflow
             WHERE parent_id = %(workflow_id)s AND parent_wait = %(name)s AND status = 'PENDING')
        RETURNING outcome, result::text
        """,  # noqa: S608 (FENCE is ours)
        wait_id=wait.id,
        name=name,
        signal=store.child_signal(name),
    )
    return with_outcome(wait, rows)

"""SIGNALS: everything that can wake a workflow is stored here first, and matched later.

A sender stores a signal, commits, and then wakes its workflows (`signals.waking`); `send` does all three. A signal is
addressed to one workflow, or to a linking id and so to every workflow that has it, then or later. The unused signals of
a finished workflow are ignored; a retry restores them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.db import transaction

from workflows.definition import LONGEST_LINKING_ID, text_of
from workflows.errors import WorkflowCancelled
from workflows.models import Workflow
from workflows.postgres.jsonb import Document, Unstorable, document_of, ensure_storable
from workflows.postgres.statements import Parameters, execute, fetch_all, fetch_one
from workflows.postgres.synchronous import COMMITS
from workflows.signals import waking
from workflows.signals.waking import OPEN_JOIN, Slice, leave_the_rest_to_maintenance

# Names of signals from outside. Names with a colon (decision:1, child:parcels) and `cancel` are the engine's own.
SIGNAL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-/]{0,198}")

# A request to cancel is a signal that every workflow listens to, until it is being compensated.
CANCEL_SIGNAL = "cancel"
# The source of the engine's own signals, and all that nobody else may use.
ENGINE = "engine"
RESERVED_SOURCES = frozenset({"console", ENGINE, "look"})
LONGEST_SOURCE, LONGEST_DEDUPE_KEY = 150, 200

# A signal to a linking id without a pending workflow is kept for a month, in case one comes, and then ignored.
KEPT_FOR_DAYS = 30


class DedupeKeyReused(Exception):
    """The source has already used this key for another signal."""


class UnknownWorkflow(ValueError):
    """No workflow has this id: it never had, or retention has deleted it."""


def is_name(text: str) -> bool:
    """Whether a signal from outside may have this name, and a step may wait for it."""
    return bool(SIGNAL_NAME.fullmatch(text)) and text != CANCEL_SIGNAL


def send(
    *,
    source: str,
    dedupe_key: str,
    name: str,
    workflow_id: int | None = None,
    linking_id: str | int | None = None,
    payload: Mapping[str, Any] | Document,
    sent_at_ms: int | None = None,
) -> bool:
    """Store a signal and wake the workflows that it is for. Returns False if it was already stored.

    In a transaction of the caller's it is stored with what the caller writes, or not at all, and wakes after the
    commit, because only a committed signal can wake. If waking fails, maintenance wakes the row.

    - `source` (up to 150 characters) and `dedupe_key` (up to 200) identify the signal; `name` is what a wait asks for.
    - `workflow_id` or `linking_id` says whom it is for: one of them. A linking id may have no workflow yet.

    Raises UnknownWorkflow, DedupeKeyReused, and ValueError for another address, a source of ours, a name that no step
    can wait for, or what PostgreSQL cannot store; neither these nor database errors abort the transaction. False also
    means that retention has emptied the workflow.
    """
    if source in RESERVED_SOURCES or not 0 < len(source) <= LONGEST_SOURCE:  # our key, used first, would stop ours
        raise Unstorable(
            "source", f"A source has 1 to {LONGEST_SOURCE} characters, and is none of {sorted(RESERVED_SOURCES)}."
        )
    if not 0 < len(dedupe_key) <= LONGEST_DEDUPE_KEY:
        raise Unstorable("dedupe_key", f"A dedupe_key has 1 to {LONGEST_DEDUPE_KEY} characters.")
    address = None if linking_id is None else text_of(linking_id) or ""
    if address is not None and not 0 < len(address) <= LONGEST_LINKING_ID:
        raise ValueError(f"A linking id is a text or number of 1 to {LONGEST_LINKING_ID} characters.")
    if not is_name(name):  # as a sender outside: `cancel` would cancel the workflow, and refund what it has charged
        raise ValueError("No step can wait for this name: `cancel` and names with a colon are the engine's own.")
    if (workflow_id is None) == (address is None):
        raise ValueError("A signal is for one workflow, or for a linking id: say workflow_id=... or linking_id=... .")
    ensure_storable([source, dedupe_key, address, None if isinstance(payload, Document) else dict(payload)])
    with transaction.atomic():
        signal_id = store(
            source=source,
            dedupe_key=dedupe_key,
            name=name,
            workflow_id=workflow_id,
            linking_id=address,
            payload=payload,
            sent_at_ms=sent_at_ms,
        )
        if signal_id is not None:
            transaction.on_commit(partial(_wake_for, signal_id))
    return signal_id is not None


def _wake_for(signal_id: int) -> None:
    with leave_the_rest_to_maintenance():
        waking.wake_for(signal_id)


def store(
    *,
    source: str,
    dedupe_key: str,
    name: str,
    workflow_id: int | None = None,
    linking_id: str | None = None,
    payload: Mapping[str, Any] | Document,
    sent_at_ms: int | None = None,
) -> int | None:
    """Store a signal, and return its id; None when `source` has already sent the same signal under `dedupe_key`.

    The caller commits, then wakes. A signal to a finished workflow is stored as ignored, except a request to cancel:
    the history will say that it came too late. A signal to an emptied workflow is not stored, and None is returned,
    because nothing may bring its content back. Raises UnknownWorkflow, and DedupeKeyReused when the key was used for
    another signal; a signal with another `sent_at_ms` is another.
    """
    document = payload if isinstance(payload, Document) else document_of(payload)
    signal = {
        "source": source,
        "dedupe_key": dedupe_key,
        "name": name,
        "workflow_id": workflow_id,
        "linking_id": linking_id,
        "sent_at_ms": sent_at_ms,
        **document.parameters,
    }
    # The same statement reads whether the workflow has finished; if it finishes at this moment, maintenance ignores the
    # signal. The row of a finished workflow stays locked until the caller commits, because otherwise a retry would miss
    # a signal to restore.
    inserted = fetch_one(
        f"""
        WITH finished AS MATERIALIZED (
            SELECT emptied_at FROM workflows_workflow
              WHERE id = %(workflow_id)s AND status <> 'PENDING' AND %(name)s <> 'cancel' FOR NO KEY UPDATE)
        INSERT INTO workflows_signal (
               source, dedupe_key, name, workflow_id, linking_id, payload, sent_at_ms, closed_at, ignored)
           SELECT %(source)s, %(dedupe_key)s, %(name)s, %(workflow_id)s::bigint, %(linking_id)s, {Document.SQL},
                  %(sent_at_ms)s::bigint, CASE WHEN w.finished THEN clock_timestamp() END, w.finished
             FROM (SELECT count(*) > 0, count(emptied_at) = 0 FROM finished) w (finished, keeps_content)
            WHERE w.keeps_content AND (
                  %(workflow_id)s::bigint IS NULL
                  OR EXISTS (SELECT FROM workflows_workflow WHERE id = %(workflow_id)s))
           ON CONFLICT (source, dedupe_key) DO NOTHING RETURNING id""",  # noqa: S608 (ours)
        signal,
    )
    if inserted:
        return int(inserted[0])
    # A new statement, because the snapshot of the first one does not show the row that won.
    same = fetch_one(
        f"""SELECT (name, workflow_id, linking_id, payload) IS NOT DISTINCT FROM (
                   %(name)s, %(workflow_id)s::bigint, %(linking_id)s, {Document.SQL})
                   AND sent_at_ms IS NOT DISTINCT FROM %(sent_at_ms)s::bigint, {COMMITS}
              FROM workflows_signal WHERE source = %(source)s AND dedupe_key = %(dedupe_key)s""",  # noqa: S608 (ours)
        signal,
    )
    if same and not same[0]:
        raise DedupeKeyReused("The source has already used this dedupe_key for another signal.")
    if same is None and workflow_id is not None and not Workflow.objects.filter(pk=workflow_id).exists():
        raise UnknownWorkflow(f"There is no workflow {workflow_id}.")
    return None


# --- Requests to cancel -----------------------------------------------------------------------------


def cancel_requested_sql(workflow_id: str) -> str:
    """SQL for whether a person has asked to cancel the workflow; `workflow_id` is SQL for one id."""
    return f"""EXISTS (SELECT FROM workflows_signal s
                       WHERE s.workflow_id = {workflow_id} AND s.name = '{CANCEL_SIGNAL}' AND s.closed_at IS NULL)"""


def cancellation(
    workflow_id: int, fetch: Callable[[str, Parameters], list[tuple[Any, ...]]] = fetch_all
) -> WorkflowCancelled | None:
    """The open request to cancel a workflow, if there is one. A worker's `fetch` is its session's `run`."""
    found = fetch(
        """SELECT payload->>'by', payload->>'reason' FROM workflows_signal
            WHERE workflow_id = %s AND name = 'cancel' AND closed_at IS NULL ORDER BY id LIMIT 1""",
        [workflow_id],
    )
    return WorkflowCancelled(by=found[0][0], reason=found[0][1]) if found else None


def close_cancellations(*ids: int) -> None:
    """Close the requests to cancel workflows: they were obeyed, or a retry must not see them."""
    execute(
        """UPDATE workflows_signal SET closed_at = clock_timestamp()
            WHERE workflow_id = ANY (%s) AND name = 'cancel' AND closed_at IS NULL""",
        [[*ids]],
    )


# --- Parents and children ---------------------------------------------------------------------------


def child_signal(wait_name: str) -> str:
    """The name of the signal which says that the last child of the wait `wait_name` has finished."""
    return f"child:{wait_name}"


def notify_parent(child_id: int) -> None:
    """If a child that may have finished was the last one, send its parent a signal, and wake the parent.

    A separate statement after the child's commit: of two last children that finish at once, the worker that looks
    second sees both. So the parent of a thousand children is woken only once or twice.
    """
    inserted = fetch_one(
        f"""INSERT INTO workflows_signal (source, dedupe_key, name, workflow_id)
            SELECT 'engine', 'child:' || c.id || ':' || gen_random_uuid(), 'child:' || j.name, j.workflow_id
              FROM workflows_workflow c JOIN workflows_wait j ON j.workflow_id = c.parent_id AND j.name = c.parent_wait
             WHERE c.id = %s AND {OPEN_JOIN}
            RETURNING workflow_id""",  # noqa: S608 (ours)
        (child_id,),
    )
    if inserted:
        waking.wake(inserted[0])


def try_notify_parent(child_id: int) -> None:
    """Notify the parent. If that fails, log the error; maintenance wakes the parent a moment later."""
    with leave_the_rest_to_maintenance():
        notify_parent(child_id)


def cancel_children(workflow_id: int, *, by: str, reason: str) -> None:
    """Request the cancellation of a cancelled workflow's children, in its transaction. Maintenance wakes them."""
    execute(
        """INSERT INTO workflows_signal (source, dedupe_key, name, workflow_id, payload)
           SELECT 'engine', 'cancel:' || id || ':' || gen_random_uuid(), 'cancel', id, %s::jsonb
             FROM workflows_workflow WHERE parent_id = %s AND status = 'PENDING' AND NOT compensating""",
        [json.dumps({"by": by, "reason": reason}), workflow_id],
    )


def withdraw_cancellation_of_children(parents: Sequence[int]) -> None:
    """Withdraw the requests of `cancel_children` that the children of these parents have not obeyed yet."""
    execute(
        """UPDATE workflows_signal SET closed_at = clock_timestamp()
            WHERE name = 'cancel' AND source = 'engine' AND closed_at IS NULL
              AND workflow_id IN (SELECT id FROM workflows_workflow WHERE parent_id = ANY (%s))""",
        [list(parents)],
    )


# --- Workflows that have finished -------------------------------------------------------------------


def ignore_signals(workflow_id: int) -> None:
    """Ignore the unused signals of a workflow, in the transaction in which it finishes."""
    execute(
        """UPDATE workflows_signal SET closed_at = clock_timestamp(), ignored = true
            WHERE workflow_id = %s AND closed_at IS NULL AND name <> 'cancel'""",
        [workflow_id],
    )


def restore_signals(*ids: int) -> None:
    """Restore the signals that were ignored when the workflows finished, or later, because a person retries them."""
    execute(
        """UPDATE workflows_signal SET closed_at = NULL, ignored = false
            WHERE workflow_id = ANY (%s) AND ignored AND name <> 'cancel'""",
        [[*ids]],
    )


def ignore_late_signals(after: int = 0) -> Slice:
    """Ignore signals that came while their workflow was ending, and old signals to linking ids without a pending
    workflow.

    The history says of each late request to cancel that it came too late. The rows of the finished workflows are locked
    meanwhile, because otherwise a retry would miss signals to restore.
    """
    last, next_after = waking.slice_of_signals(after)
    if not last:
        return Slice(0)
    slice_ = {"after": after, "last": last}
    in_slice = "s.closed_at IS NULL AND s.id > %(after)s AND s.id <= %(last)s"
    # A transaction that was open while its workflow finished and was emptied may have stored these: nothing may remain.
    execute(
        f"""
        DELETE FROM workflows_signal s USING workflows_workflow w
         WHERE {in_slice} AND w.id = s.workflow_id AND w.emptied_at IS NOT NULL AND s.name <> '{CANCEL_SIGNAL}'""",  # noqa: S608 (ours)
        slice_,
    )
    execute(
        f"""
        WITH finished AS MATERIALIZED (
            SELECT w.id FROM workflows_workflow w
             WHERE w.status <> 'PENDING' AND w.id IN (
                SELECT s.workflow_id FROM workflows_signal s WHERE {in_slice} AND s.workflow_id IS NOT NULL)
               FOR NO KEY UPDATE SKIP LOCKED),
        late AS (
            UPDATE workflows_signal s SET closed_at = clock_timestamp(), ignored = true
             WHERE {in_slice} AND s.workflow_id IS NOT NULL
               AND (s.workflow_id IN (SELECT id FROM finished) OR s.name = '{CANCEL_SIGNAL}' AND (
                    SELECT w.compensating FROM workflows_workflow w WHERE w.id = s.workflow_id))
            RETURNING s.workflow_id, s.name, s.payload)
        INSERT INTO workflows_event (workflow_id, kind, actor, detail)
        SELECT workflow_id, 'cancel_too_late', payload->>'by',
               jsonb_build_object('reason', 'It had finished, or failed by itself, before the request was seen.')
          FROM late WHERE name = '{CANCEL_SIGNAL}'
        """,  # noqa: S608 (the name is ours)
        slice_,
    )
    # Each linking id is looked up once, not for each signal: proving that none is pending reads all its workflows.
    old = f"{in_slice} AND s.linking_id IS NOT NULL AND s.created_at < now() - interval '{KEPT_FOR_DAYS} days'"
    execute(
        f"""
        WITH unwanted AS MATERIALIZED (
            SELECT linking_id FROM (SELECT DISTINCT s.linking_id FROM workflows_signal s WHERE {old}) l
             WHERE NOT EXISTS (
                SELECT FROM workflows_workflow w WHERE w.linking_id = l.linking_id AND w.status = 'PENDING'))
        UPDATE workflows_signal s SET closed_at = clock_timestamp(), ignored = true
         WHERE {old} AND s.linking_id IN (SELECT linking_id FROM unwanted)""",  # noqa: S608 (ours)
        slice_,
    )
    return Slice(0, next_after)

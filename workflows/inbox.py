"""The inbox: whatever can wake a workflow is stored here first, and matched later.

The two halves of waking. Whoever sends: `store` the signal and commit; then, as a second statement, `wake` the row
if it is not locked. A worker that has committed a suspension: `wake_if_answered`, a new statement after the commit.
Whichever comes second sees what the first has committed, so no order of the two loses the signal, unless the sender
dies in between or a third party holds the row just then: `sweep` finds those. Such a third party can be another worker:
its claim came upon the row as it was before the suspension, locked it as it is after, found it not due, and went on to
the next one; PostgreSQL keeps that lock until the claim ends (measured: once in some thousand suspensions).
"""

from __future__ import annotations

import json
from typing import Any

from django.db import connection

from workflows.definition import definitions
from workflows.errors import WorkflowCancelled

# Due before the backlog, not behind it: it has waited already. (now() keeps a row from a clock that was ahead.)
_WAKE = """
    UPDATE workflows_workflow SET invisible_until = least(created_at, now())
     WHERE id IN (
        SELECT w.id FROM workflows_workflow w
         WHERE {condition} AND w.status = 'PENDING' AND w.invisible_until > now()
           FOR NO KEY UPDATE OF w SKIP LOCKED)
"""

# A request to cancel is a signal that every workflow listens to, until it is being compensated.
CANCEL = "cancel"

_ANSWERED = """EXISTS (
    SELECT FROM workflows_signal s
     WHERE s.workflow_id = w.id AND s.closed_at IS NULL
       AND (s.name = ANY (w.wake_on) OR s.name = 'cancel' AND NOT w.compensating))"""


def cancelled(workflow_id: str) -> str:
    """SQL for whether somebody has asked for the workflow to be cancelled; `workflow_id` is SQL too.

    Not EXISTS: in front of a long queue the planner makes a hash of that, of all signals, for the sake of one row.
    """
    return f"""(SELECT true FROM workflows_signal s
                 WHERE s.workflow_id = {workflow_id} AND s.name = '{CANCEL}' AND s.closed_at IS NULL
                 LIMIT 1) IS NOT NULL"""  # noqa: S608 (both are ours)


def store(*, source: str, dedupe_key: str, name: str, workflow_id: int, payload: dict[str, Any]) -> bool:
    """Store a signal; False when `source` has told the fact `dedupe_key` before. The caller commits, then wakes."""
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO workflows_signal (source, dedupe_key, name, workflow_id, payload)
               VALUES (%s, %s, %s, %s, %s) ON CONFLICT (source, dedupe_key) DO NOTHING""",
            [source, dedupe_key, name, workflow_id, json.dumps(payload)],
        )
        return bool(cursor.rowcount)


def wake(workflow_id: int, name: str) -> bool:
    """Make a workflow due that waits for the signal `name`. False when it does not, or somebody holds its row.

    In a transaction of its own, after the signal's commit.
    """
    listens = f"%s = ANY (w.wake_on || ARRAY['{CANCEL}'])"
    return _execute(_WAKE.format(condition=f"w.id = %s AND {listens}"), [workflow_id, name]) == 1


def wake_if_answered(workflow_id: int) -> bool:
    """Make a workflow due whose signal came while it was suspending. After the suspension's commit, never before."""
    return _execute(_WAKE.format(condition=f"w.id = %s AND {_ANSWERED}"), [workflow_id]) == 1


def sweep() -> int:
    """Wake every workflow with an unanswered signal that it waits for; how many. Finds what both wakers missed."""
    candidates = "w.id IN (SELECT workflow_id FROM workflows_signal WHERE closed_at IS NULL)"
    return _execute(_WAKE.format(condition=f"{candidates} AND {_ANSWERED}"), [])


def cancellation(workflow_id: int) -> WorkflowCancelled | None:
    """The request to cancel a workflow, if there is one that nobody has dealt with."""
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT payload->>'by', payload->>'reason' FROM workflows_signal
                WHERE workflow_id = %s AND name = 'cancel' AND closed_at IS NULL ORDER BY id LIMIT 1""",
            [workflow_id],
        )
        request = cursor.fetchone()
    return WorkflowCancelled(by=request[0], reason=request[1]) if request else None


def close_cancellations(workflow_id: int) -> None:
    """Put the requests to cancel a workflow aside: they are obeyed, or its new run knows nothing of them."""
    _execute(
        """UPDATE workflows_signal SET closed_at = clock_timestamp()
            WHERE workflow_id = %s AND name = 'cancel' AND closed_at IS NULL""",
        [workflow_id],
    )


def refuse_late_cancellations() -> None:
    """Tell in the history which requests to cancel came too late: the workflow had come to its end by itself."""
    _execute(
        """
        WITH late AS (
            UPDATE workflows_signal s SET closed_at = clock_timestamp()
             WHERE s.name = 'cancel' AND s.closed_at IS NULL
               AND (SELECT w.status <> 'PENDING' OR w.compensating FROM workflows_workflow w WHERE w.id = s.workflow_id)
            RETURNING s.workflow_id, s.payload)
        INSERT INTO workflows_event (workflow_id, kind, actor, detail)
        SELECT workflow_id, 'cancel_too_late', payload->>'by',
               jsonb_build_object('reason', 'It had ended, or failed by itself, before the request was seen.') FROM late
        """,
        [],
    )


def wake_expired() -> int:
    """Make every workflow due whose time is over (`expires_after`); how many.

    Of the types that this release knows: it would put the others back, to be woken again by the next look.
    """
    # statement_timestamp(), for an index is not searched by what changes from row to row, as clock_timestamp() does.
    expired = "w.expires_at <= statement_timestamp() AND w.expires_at IS NOT NULL AND NOT w.compensating"
    return _execute(_WAKE.format(condition=f"{expired} AND w.workflow_type = ANY (%s)"), [list(definitions())])


def _execute(sql: str, parameters: list[Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return int(cursor.rowcount)

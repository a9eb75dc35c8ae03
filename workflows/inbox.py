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

# Due before the backlog, not behind it: it has waited already. (now() keeps a row from a clock that was ahead.)
_WAKE = """
    UPDATE workflows_workflow SET invisible_until = least(created_at, now())
     WHERE id IN (
        SELECT w.id FROM workflows_workflow w
         WHERE {condition} AND w.status = 'PENDING' AND w.invisible_until > now()
           FOR NO KEY UPDATE OF w SKIP LOCKED)
"""

_ANSWERED = """EXISTS (
    SELECT FROM workflows_signal s
     WHERE s.workflow_id = w.id AND s.answered_id IS NULL AND s.name = ANY (w.wake_on))"""


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
    return _execute(_WAKE.format(condition="w.id = %s AND %s = ANY (w.wake_on)"), [workflow_id, name]) == 1


def wake_if_answered(workflow_id: int) -> bool:
    """Make a workflow due whose signal came while it was suspending. After the suspension's commit, never before."""
    return _execute(_WAKE.format(condition=f"w.id = %s AND {_ANSWERED}"), [workflow_id]) == 1


def sweep() -> int:
    """Wake every workflow with an unanswered signal that it waits for; how many. Finds what both wakers missed."""
    candidates = "w.id IN (SELECT workflow_id FROM workflows_signal WHERE answered_id IS NULL)"
    return _execute(_WAKE.format(condition=f"{candidates} AND {_ANSWERED}"), [])


def _execute(sql: str, parameters: list[int | str]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return int(cursor.rowcount)

"""UNDOING a decision: for ten seconds its user may take it back, because no signal of it is stored before that.

1. The decision is stored at once, in the task's row: an expiry, a cancellation and colleagues see it. What its signal
   will say stands beside it, in `held`.
2. For ten seconds its user may undo it. Then maintenance stores the signal, and wakes the workflow.

The row's lock decides between the two, and the database's clock says whose turn it is. A decision is held only while
workers do the maintenance task, and only well before a deadline: no decision is late for its own workflow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workflows.errors import NotAllowed
from workflows.models import Event, ManualTask, State
from workflows.operations.guards import lock_workflow, record_event, require, short_transaction
from workflows.operations.task_rules import MAY_DECIDE, read_task
from workflows.operations.tasks import decide
from workflows.postgres.statements import execute, fetch_all, fetch_one
from workflows.signals import store, waking
from workflows.signals.waking import Slice

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# The name of the maintenance task.
CHORE = "store held decisions"
# Seconds for an undo. Long enough to read the message; patients wait so much longer.
UNDO_FOR = 10
# Seconds before a deadline of the task or the workflow in which nothing is held, because maintenance may be late.
MARGIN = 60
# Of one slice. A person decides one in seconds, so that these are many people.
ROWS = 100

# A clock that was set back since lengthens no undo, and delays no signal.
_CAN_BE_UNDONE = f"""
    (clock_timestamp() >= decided_at AND clock_timestamp() < decided_at + interval '{UNDO_FOR} s')"""


_DUE = f"""
    SELECT id, workflow_id, held::text FROM workflows_manualtask
     WHERE held IS NOT NULL AND NOT {_CAN_BE_UNDONE}
     ORDER BY decided_at, id LIMIT {ROWS} FOR NO KEY UPDATE SKIP LOCKED"""  # noqa: S608 (ours)


def approve(task_id: int, *, user: User, reason: str = "", answer: Mapping[str, Any] | None = None) -> str:
    """As `tasks.approve`, and its user may undo it for ten seconds, if its step asked for an approval."""
    return decide(task_id, ManualTask.State.APPROVED, user=user, reason=reason, answer=answer, hold=_hold)


def reject(task_id: int, *, user: User, reason: str) -> str:
    """As `tasks.reject`, and its user may undo it for ten seconds, if its step asked for an approval."""
    return decide(task_id, ManualTask.State.REJECTED, user=user, reason=reason, hold=_hold)


def undo(task_id: int, *, user: User) -> str:
    """Take back the user's own decision: the task is open again, with its assignee. Returns a sentence.

    Refused after ten seconds, and once the workflow has finished or is reversed: its open tasks were closed then.
    """
    require(user, *MAY_DECIDE)
    with short_transaction():
        task = read_task(task_id)
        # While the row is locked nothing finishes the workflow, and closes its open tasks, behind this one's back.
        _, state = lock_workflow(task.workflow_id)
        if state in (State.COMPENSATING, State.FAILED, State.CANCELLED, State.COMPLETE):
            raise NotAllowed(f"The workflow is {state.label.lower()} by now: nothing is left to undo.")
        undone = execute(
            f"""UPDATE workflows_manualtask
                   SET state = 'open', decided_by_id = NULL, decided_at = NULL, reason = '', held = NULL
                 WHERE id = %s AND held IS NOT NULL AND decided_by_id = %s AND {_CAN_BE_UNDONE}""",  # noqa: S608 (ours)
            [task_id, user.pk],
        )
        if not undone:
            raise NotAllowed(_why_not(task, user))
        record_event(task.workflow_id, Event.Kind.DECISION_UNDONE, user, reason="", task=task_id, decision=task.state)
    return f"Undone: task {task_id} is open again."


def seconds_left(task_id: int, user: User) -> float:
    """How long `user` can still undo the decision of a task; 0 if that is over, or was never so."""
    sql = f"""SELECT extract(epoch FROM decided_at + interval '{UNDO_FOR} s' - clock_timestamp())::float
                FROM workflows_manualtask
               WHERE id = %s AND held IS NOT NULL AND decided_by_id = %s AND {_CAN_BE_UNDONE}"""  # noqa: S608 (ours)
    found = fetch_one(sql, (task_id, user.pk))
    return max(found[0], 0.0) if found else 0.0


def store_due(after: int = 0) -> Slice:
    """Store the signals of the decisions that can no longer be undone, each once, and wake their workflows.

    In one transaction. A workflow that is locked is woken by `wake by new signals`.
    """
    due = fetch_all(_DUE, ())
    if not due:
        return Slice(0)
    for task_id, workflow_id, held in due:
        name = ManualTask(pk=task_id).signal_name
        store.store(source="console", dedupe_key=name, name=name, workflow_id=workflow_id, payload=json.loads(held))
    execute("UPDATE workflows_manualtask SET held = NULL WHERE id = ANY (%s)", [[task_id for task_id, _, _ in due]])
    for _, workflow_id, _ in due:
        waking.wake(workflow_id)
    return Slice(len(due))


def _hold(task: ManualTask, payload: Mapping[str, Any]) -> bool:
    """Hold back the signal of a decision, in its transaction; False if it has to be stored at once."""
    held = execute(
        f"""UPDATE workflows_manualtask t SET held = %(payload)s::jsonb
             WHERE id = %(task)s AND undoable AND expires_at > clock_timestamp() + interval '{MARGIN} s'
               AND EXISTS (SELECT FROM workflows_workflow w
                            WHERE w.id = t.workflow_id
                              AND (w.expires_at > clock_timestamp() + interval '{MARGIN} s') IS NOT FALSE)
               AND EXISTS (SELECT FROM workflows_chore
                            WHERE name = %(chore)s AND set_aside_at IS NULL AND failing_since IS NULL
                              AND due_at > clock_timestamp() - interval '{MARGIN} s')""",  # noqa: S608 (ours)
        {"payload": json.dumps(payload), "task": task.pk, "chore": CHORE},
    )
    return held == 1


def _why_not(task: ManualTask, user: User) -> str:
    if task.decided_by is None:
        return "It is not decided."
    if task.decided_by != user:
        return f"{task.decided_by.get_username()} has decided it, and only they can undo it."
    return f"The {UNDO_FOR} seconds for an undo are over, and the decision stands."

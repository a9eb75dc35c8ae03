"""HISTORY: an event for every transition and every action of a person, written together with the change."""

from __future__ import annotations

import json
from typing import Any

from django.db import connection

from workflows.errors import ClaimLost
from workflows.models import Attempt, Event
from workflows.models.clock import ClockTimestamp
from workflows.models.steps_on_record import as_recorded
from workflows.models.xids import CurrentTransactionId
from workflows.redaction import frames
from workflows.state.attempt_log import OpenAttempt


def record(
    workflow_id: int,
    kind: Event.Kind,
    *,
    attempt: int | None = None,
    step: str = "",
    actor: str = "",
    finishes: bool = False,
    **detail: Any,
) -> None:
    """Add an event, in the current transaction. `actor` is a user's name, empty for the engine.

    `finishes`: the workflow becomes COMPLETE or FAILED with this event. Exactly one event says so each time, for
    counting.

    `detail` is JSON for people, without patient data: the caller masks an error's message.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"""INSERT INTO workflows_event (workflow_id, kind, attempt, step, actor, detail, finished_xid)
               VALUES (%s, %s, %s, %s, %s, %s, {"pg_current_xact_id()" if finishes else "NULL"})""",  # noqa: S608 (ours)
            [workflow_id, kind, attempt, step, actor, json.dumps(detail)],
        )


def record_in(attempt: OpenAttempt, kind: Event.Kind, step: str = "", **detail: Any) -> None:
    record(attempt.workflow_id, kind, attempt=attempt.number, step=step, **detail)


def close_attempt(attempt: OpenAttempt, outcome: Attempt.Outcome, error: BaseException | None) -> None:
    """Close a decided attempt, as the last statement of the claim's transaction.

    Raises ClaimLost when the attempt is not visible: the attempt log did not commit it, or our snapshot is older.
    """
    steps = as_recorded(attempt.steps)
    closed = Attempt.objects.filter(pk=attempt.id).update(
        outcome=outcome,
        closed_at=ClockTimestamp(),
        closed_xid=CurrentTransactionId(),
        steps_in_short=steps.in_short,
        steps_in_full=steps.in_full,
        traceback=frames(error) if error else "",
    )
    if closed != 1:
        raise ClaimLost("the attempt is not to be seen")

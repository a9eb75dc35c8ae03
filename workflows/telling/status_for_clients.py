"""What a client learns of its submission: from `GET /v1/submissions/KEY`, and from lifecycle events."""

from __future__ import annotations

from typing import Any

from workflows.models import State, Wait, Workflow
from workflows.telling.patient import message_of

_WAITS: dict[str, str] = {
    Wait.Kind.APPROVAL: "person",
    Wait.Kind.SIGNAL: "signal",
    Wait.Kind.TIME: "time",
    Wait.Kind.CHILDREN: "workflows",
}
# The columns that this needs: nothing of what was sent, and nothing that came of it.
TOLD = (
    *("workflow_type", "status", "current_step", "last_error_code", "compensating", "parked_on", "waiting_for"),
    *("created_at", "completed_at", "cancelled_at"),
)


def told_to_client(row: Workflow) -> dict[str, Any]:
    """The answer for a row with its `state`."""
    code = {"code": row.last_error_code} if row.status == Workflow.Status.FAILED else {}
    waits_for = {"waits_for": _waits_for(row)} if row.state in (State.WAITING, State.PARKED) else {}
    return {
        "id": row.pk,
        "status": row.status,
        "state": row.state,
        "created_at": row.created_at,
        "completed_at": row.completed_at,
        **code,
        **waits_for,
        "message": message_of(row),
    }


def open_wait(row: Workflow) -> Wait | None:
    """The newest wait that is open."""
    return Wait.objects.filter(workflow=row, outcome="", superseded=False).only("kind").order_by("-id").first()


def _waits_for(row: Workflow) -> str:
    """In one word. A service is not named, because clients need not know which ones we have."""
    if row.state == State.PARKED:
        return "service"
    wait = open_wait(row)
    return _WAITS.get(wait.kind, "other") if wait else "other"

"""What people may do with the case of a patient, besides the workflow's own operations: write notes about it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4, uuid5

from workflows.errors import NotAllowed
from workflows.models import CaseNote, Event, Workflow
from workflows.operations import MAY_DECIDE
from workflows.operations.guards import ACKNOWLEDGE, record_event, require, short_transaction, stated, why_emptied

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MAY_NOTE = (ACKNOWLEDGE, *MAY_DECIDE)
MOST_CHARACTERS = 2000


def add_note(workflow_id: int, *, user: User, reason: str, form: UUID | None = None) -> None:
    """Store a note on a workflow in any state. `reason` is its text; the history has only who wrote it, and when.

    `form` identifies the form that was sent: the same text from it again stores nothing.
    """
    require(user, *MAY_NOTE)
    text = stated(reason)
    if not text:
        raise NotAllowed("Write the note: there is no text.")
    if len(text) > MOST_CHARACTERS:
        raise NotAllowed(f"A note has at most {MOST_CHARACTERS:,} characters; this one has {len(text):,}.")
    with short_transaction():
        _keep_content(workflow_id)
        note = {"workflow_id": workflow_id, "actor": user.get_username(), "text": text}
        key = uuid5(form, text) if form else uuid4()
        _, is_new = CaseNote.objects.get_or_create(key=key, defaults=note)
        if is_new:
            record_event(workflow_id, Event.Kind.NOTED, user, reason="")


def _keep_content(workflow_id: int) -> None:
    """Lock a workflow that has ended, so that it is not emptied meanwhile. Raises NotAllowed if it is already.

    While one is under way nothing empties it, and a worker may keep the lock for a whole run.
    """
    rows = Workflow.objects.filter(pk=workflow_id).defer("payload", "context")
    if rows.filter(status=Workflow.Status.PENDING).exists():
        return
    workflow = rows.select_for_update(no_key=True).first()
    if workflow is None:
        raise NotAllowed(f"There is no workflow {workflow_id}.")
    if refusal := why_emptied(workflow):
        raise NotAllowed(refusal)

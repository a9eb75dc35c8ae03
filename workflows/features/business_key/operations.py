"""What people may do with a workflow that waits for another of its business key, or ended as its duplicate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workflows.errors import NotAllowed
from workflows.features.business_key import duplicates
from workflows.models import Event, Workflow
from workflows.operations.guards import (
    CANCEL_PAID,
    RETRY,
    lock_workflow,
    record_event,
    require,
    require_reason,
    short_transaction,
)
from workflows.operations.retrying import start_again
from workflows.state import transitions
from workflows.wording import of_person

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def not_a_duplicate(workflow_id: int, *, user: User, reason: str) -> None:
    """Run a workflow beside the others of its business key, although it waits for one or ended as its duplicate.

    It then is a holder, too: a later one waits for both. The patient may be charged a second time, so the user needs
    the permission to charge again.
    """
    require(user, RETRY)
    require_reason(reason, "what is not a duplicate")
    with short_transaction():
        workflow, state = lock_workflow(workflow_id)
        if not duplicates.is_one(workflow):
            raise NotAllowed(
                "Only one that waits for another with the same business key, or has ended as its duplicate, can be "
                f"said not to be one; this one is {state.label.lower()}."
            )
        if refusal := why_not_say_no_duplicate(user):
            raise NotAllowed(refusal)
        duplicates.make_holder(workflow)
        if workflow.status == Workflow.Status.PENDING:
            transitions.make_due(workflow_id)
        else:
            start_again(workflow)
        record_event(workflow_id, Event.Kind.NOT_A_DUPLICATE, user, reason=reason)


def why_not_say_no_duplicate(user: User) -> str:
    """Why `user`, who may retry, may not say that a workflow is no duplicate; empty if they may."""
    return (
        "" if user.has_perm(CANCEL_PAID) else of_person("The patient may be charged a second time: ask a support lead.")
    )

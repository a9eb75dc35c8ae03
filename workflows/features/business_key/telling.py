"""The sentence for a second workflow of a business key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workflows.definition import wording_of_type
from workflows.errors import DIFFERS
from workflows.features.business_key import duplicates
from workflows.features.business_key.duplicates import Other
from workflows.features.business_key.holders import HOLDER
from workflows.models import Workflow
from workflows.telling.words import clock


def second(workflow: Workflow, others: Sequence[Other]) -> str:
    """The sentence for a second workflow; empty if it is not one."""
    same = wording_of_type(workflow.workflow_type).same_business
    if duplicates.is_waiting(workflow):
        return (
            f"A second submission for {same}: the first is under way. If the first completes, this one ends as its "
            "duplicate. If the first fails, this one goes on."
        )
    if not duplicates.has_ended_as_one(workflow):
        return ""
    open_ = "" if workflow.acknowledged_failure else " Somebody has to look: it may be wanted, or was charged itself."
    if workflow.last_error_code == DIFFERS:
        return (
            f"Ended at {clock(workflow.completed_at)}, and was not carried out: it differs from another submission for "
            f"{same}.{open_}"
        )
    ended = f"Ended as a duplicate at {clock(workflow.completed_at)}: the first submission for {same}"
    if any(each.role == HOLDER and each.status == Workflow.Status.COMPLETE for each in others):
        return f"{ended} is complete.{open_}"
    return f"{ended} has failed, and a call of it was left as it is. Look at that one: if it is retried, it goes on."


def of_cancel(workflow: Workflow) -> Iterator[str]:
    """What happens to the workflows that wait for this one if it is cancelled."""
    if behind := [f"workflow {each.workflow_id}" for each in duplicates.others_of(workflow) if each.is_waiting]:
        yield f"What waits for this one then goes on: {', '.join(behind)}. Cancel that, too, if it should not."

"""What people may do to a workflow. Each operation: guard, act, record, return.

The console and the commands change a workflow through these functions only, so that permission, state and history
are checked and written in one place. Each is a transaction of its own and refuses to run inside another (`durable`):
its refusals and its wake-up must be about committed rows.
"""

from workflows.operations.answers import answer_model
from workflows.operations.guards import CANCEL, DECIDE, RETRY, REVOKE, RUN_NOW, WorkflowBusy
from workflows.operations.keys import revoke
from workflows.operations.tasks import (
    approve,
    claim_task,
    reject,
    release_task,
    take_back,
    why_not_claim,
    why_not_decide,
    why_not_release,
)
from workflows.operations.workflows import cancel, retry, run_now

__all__ = [
    "CANCEL",
    "DECIDE",
    "RETRY",
    "REVOKE",
    "RUN_NOW",
    "WorkflowBusy",
    "answer_model",
    "approve",
    "cancel",
    "claim_task",
    "reject",
    "release_task",
    "retry",
    "revoke",
    "run_now",
    "take_back",
    "why_not_claim",
    "why_not_decide",
    "why_not_release",
]

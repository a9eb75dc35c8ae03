"""What people may do to a workflow, and to what it depends on. Each operation: guard, act, record, return.

The console and the commands change a workflow only through these functions, so permission, state and history are in one
place. Each runs in its own transaction and refuses to run inside another (`durable`): its refusals and its wake-up must
be about committed rows.
"""

from workflows.operations.acknowledging import (
    able_to_acknowledge,
    acknowledge,
    acknowledgement,
    assign_cause,
    failures_left,
)
from workflows.operations.answers import answer_model, may_retry, said_of_never
from workflows.operations.chores import go_on
from workflows.operations.confirming import (
    confirm,
    confirm_retry,
    do_not_confirm,
    do_not_confirm_retry,
    review_alone,
    said,
)
from workflows.operations.guards import (
    ACKNOWLEDGE,
    ASSIGN,
    CANCEL,
    CANCEL_PAID,
    CORRECT,
    DECIDE,
    FOLLOW_UP,
    HOLD,
    LET_FAIL,
    RESOLVE,
    RETRY,
    REVEAL,
    REVOKE,
    RUN_NOW,
    SET_PACE,
    SETTLE,
    TRY_NOW,
    VIEW_AUDIT,
    WorkflowBusy,
    rehearsed,
    why_emptied,
)
from workflows.operations.keys import revoke
from workflows.operations.looking import record_export, record_list, record_view, reveal, revealable
from workflows.operations.payments import held_by
from workflows.operations.retrying import ended_at, retry, why_not_retry
from workflows.operations.task_rules import (
    MAY_DECIDE,
    why_nobody_decides,
    why_not_assign,
    why_not_claim,
    why_not_decide,
    why_not_release,
    why_not_retract,
    why_not_retry_instead,
)
from workflows.operations.tasks import (
    approve,
    ask_lead,
    assign,
    claim_task,
    decidable,
    reject,
    release_task,
    retract,
)
from workflows.operations.workflows import cancel, run_now, why_not_cancel

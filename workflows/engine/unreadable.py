"""UNREADABLE: a workflow whose secrets do not open. No step runs without them: a person is asked.

While the keys are changed one worker may have a key that another lacks: what is under that key is left to the first.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from workflows.definition import WorkflowDefinition
from workflows.engine.outcomes import Failed, Held, Rescheduled, failed_by_engine
from workflows.errors import StepError, Suspend
from workflows.models import Attempt, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.sealing import payloads
from workflows.sealing.envelopes import Unreadable
from workflows.sealing.key_register import is_left_to_others
from workflows.waits import require_go_ahead, withdraw

logger = logging.getLogger(__name__)

TASK_TYPE = "secrets_unreadable"
# A whole weekend, as for other questions of the engine: only this one row waits for the answer.
TIMEOUT = timedelta(hours=72)
# It is less urgent than others: what the workflow's calls did is known. An engineer has to find a key.
DUE = timedelta(days=1)
# Another worker takes it up then; it is as likely to be this one again.
LEFT_TO_OTHERS = timedelta(seconds=15)


def open_secrets(definition: WorkflowDefinition, workflow: Workflow) -> Held | Failed | Rescheduled | None:
    """Put the secrets of the payload in clear, for the steps. What to do instead of running it if they do not open.

    Calls are undone all the same, without the secrets: the undo that needs one fails, and then a person is asked.
    """
    try:
        payloads.open_for_steps(definition, workflow)
    except Unreadable as unreadable:
        if is_left_to_others(unreadable):
            logger.error("workflow %s: %s It is left to others.", workflow.pk, str(unreadable))
            reason = "It waits for a worker that has the key of its secrets."
            return Rescheduled(ClockTimestamp() + LEFT_TO_OTHERS, reason, step=workflow.current_step)
        if not workflow.compensating:
            return _ask(definition, workflow, str(unreadable))
        payloads.open_for_steps(definition, workflow, strict=False)
    return None


def _ask(definition: WorkflowDefinition, workflow: Workflow, why: str) -> Held | Failed:
    step = definition.find_or_removed_step(workflow.current_step or definition.steps[0].name)
    try:
        for _ in range(2):  # a yes was to another try, and this was it: the question is asked again
            require_go_ahead(
                workflow,
                TASK_TYPE,
                question="A secret that was sent cannot be read. May it be tried again?",
                facts={"Why": why},
                task_type=TASK_TYPE,
                timeout=TIMEOUT,
                due=DUE,
            )
            withdraw(workflow, TASK_TYPE)
    except Suspend as suspend:
        return Held(step.name, suspend, Attempt.Outcome.HELD)
    except StepError as error:
        return failed_by_engine(step, error)
    raise AssertionError("a withdrawn question was answered")

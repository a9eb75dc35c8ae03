"""UNREADABLE: a workflow whose secrets cannot be opened. No step runs without them: a person is asked.

During a change of keys one worker may lack a key that another has; it then leaves the workflow to that worker.
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
# A whole weekend, as for other questions of the engine: only this row waits for the answer.
TIMEOUT = timedelta(hours=72)
# Less urgent than others, because the state of the workflow's calls is known. An engineer has to find a key.
DUE = timedelta(days=1)
# Then another worker may take it; it may be this one again.
LEFT_TO_OTHERS = timedelta(seconds=15)


def open_secrets(definition: WorkflowDefinition, workflow: Workflow) -> Held | Failed | Rescheduled | None:
    """Open the payload's secrets for the steps. If that fails, return what to do instead of running the workflow.

    A compensation goes on without the secrets: an undo that needs one fails, and then a person is asked.
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
        for _ in range(2):  # a "yes" allowed another try, which was this one: the question is asked again
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

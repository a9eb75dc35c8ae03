"""UNREADABLE: a workflow whose secrets do not open. No step runs without them: a person is asked.

While the keys are changed one worker may have a key that another lacks: what is under that key is left to the first.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from workflows.definition import WorkflowDefinition
from workflows.engine.executor import Failed, Held, failed_by_engine
from workflows.engine.poison import Rescheduled
from workflows.errors import StepError, Suspend
from workflows.models import Attempt, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.sealing import key_register, payloads, private
from workflows.sealing.envelopes import KeyLacking, Unreadable
from workflows.state.attempt_log import OpenAttempt
from workflows.waits import require_go_ahead, withdraw

logger = logging.getLogger(__name__)

UNREADABLE_TASK_TYPE = "secrets_unreadable"
# A whole weekend, as for other questions of the engine: only this one row waits for the answer.
TIMEOUT = timedelta(hours=72)
# Another worker takes it up then; it is as likely to be this one again.
LEFT_TO_OTHERS = timedelta(seconds=15)


def open_content(
    definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt
) -> Held | Failed | Rescheduled | None:
    """Put what a private workflow was sent in clear; the attempt has its key from then on. Else as `open_secrets`.

    Without it nothing is undone, for it could be the wrong amount: a person is asked about each call.
    """
    try:
        attempt.content = private.open_for_steps(workflow)
    except Unreadable as unreadable:
        if _is_left(unreadable) or not workflow.compensating:
            return _instead(definition, workflow, unreadable, "What was sent cannot be read.")
    return None


def open_secrets(definition: WorkflowDefinition, workflow: Workflow) -> Held | Failed | Rescheduled | None:
    """Put the secrets of the payload in clear, for the steps. What to do instead of running it if they do not open.

    Calls are undone all the same, without the secrets: the undo that needs one fails, and then a person is asked.
    """
    try:
        payloads.open_for_steps(definition, workflow)
    except Unreadable as unreadable:
        if _is_left(unreadable) or not workflow.compensating:
            return _instead(definition, workflow, unreadable, "A secret that was sent cannot be read.")
        payloads.open_for_steps(definition, workflow, strict=False)
    return None


def _is_left(unreadable: Unreadable) -> bool:
    return isinstance(unreadable, KeyLacking) and key_register.is_in_use(unreadable.key_id)


def _instead(
    definition: WorkflowDefinition, workflow: Workflow, unreadable: Unreadable, what: str
) -> Held | Failed | Rescheduled:
    if not _is_left(unreadable):
        return _ask(definition, workflow, what, str(unreadable))
    logger.error("workflow %s: %s It is left to others.", workflow.pk, unreadable)
    reason = "It waits for a worker that has the key of its secrets."
    return Rescheduled(ClockTimestamp() + LEFT_TO_OTHERS, reason, step=workflow.current_step)


def _ask(definition: WorkflowDefinition, workflow: Workflow, what: str, why: str) -> Held | Failed:
    step = definition.find_or_removed_step(workflow.current_step or definition.steps[0].name)
    try:
        for _ in range(2):  # a yes was to another try, and this was it: the question is asked anew
            require_go_ahead(
                workflow,
                UNREADABLE_TASK_TYPE,
                question=f"{what} May it be tried again?",
                facts={"Why": why},
                task_type=UNREADABLE_TASK_TYPE,
                timeout=TIMEOUT,
            )
            withdraw(workflow, UNREADABLE_TASK_TYPE)
    except Suspend as suspend:
        return Held(step.name, suspend, Attempt.Outcome.HELD)
    except StepError as error:
        return failed_by_engine(step, error)
    raise AssertionError("a withdrawn question was answered")

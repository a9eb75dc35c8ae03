"""UNREADABLE: a workflow whose secrets do not open. No step runs without them: a person is asked.

While the keys are changed one worker may have a key that another lacks: what is under that key is left to the first.
"""

from __future__ import annotations

import logging

from workflows.definition import WorkflowDefinition
from workflows.engine.outcomes import Failed, Held, Rescheduled, failed_by_engine
from workflows.errors import StepError, Suspend
from workflows.models import Attempt, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.sealing import payloads, private
from workflows.sealing.envelopes import Unreadable
from workflows.sealing.key_register import is_left_to_others
from workflows.state.attempt_log import OpenAttempt
from workflows.waits import ask_to_try_again
from workflows.waits.wait import LEFT_TO_OTHERS

logger = logging.getLogger(__name__)


def open_content(
    definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt
) -> Held | Failed | Rescheduled | None:
    """Put what a private workflow was sent in clear; the attempt has its key from then on. Else as `open_secrets`.

    Without it nothing is undone, for it could be the wrong amount: a person is asked about each call.
    """
    try:
        attempt.content = private.open_for_steps(workflow)
    except Unreadable as unreadable:
        return _instead(definition, workflow, unreadable, "What was sent cannot be read.")
    return None


def open_secrets(definition: WorkflowDefinition, workflow: Workflow) -> Held | Failed | Rescheduled | None:
    """Put the secrets of the payload in clear, for the steps. What to do instead of running it if they do not open.

    Calls are undone all the same, without the secrets: the undo that needs one fails, and then a person is asked.
    """
    try:
        payloads.open_for_steps(definition, workflow)
    except Unreadable as unreadable:
        if instead := _instead(definition, workflow, unreadable, "A secret that was sent cannot be read."):
            return instead
        payloads.open_for_steps(definition, workflow, strict=False)
    return None


def _instead(
    definition: WorkflowDefinition, workflow: Workflow, unreadable: Unreadable, what: str
) -> Held | Failed | Rescheduled | None:
    if not is_left_to_others(unreadable):
        return None if workflow.compensating else _ask(definition, workflow, what, str(unreadable))
    logger.error("workflow %s: %s It is left to others.", workflow.pk, unreadable)
    reason = "It waits for a worker that has the key of its secrets."
    return Rescheduled(ClockTimestamp() + LEFT_TO_OTHERS, reason, step=workflow.current_step)


def _ask(definition: WorkflowDefinition, workflow: Workflow, what: str, why: str) -> Held | Failed:
    step = definition.find_or_removed_step(workflow.current_step or definition.steps[0].name)
    try:
        ask_to_try_again(workflow, what, why)
    except Suspend as suspend:
        return Held(step.name, suspend, Attempt.Outcome.HELD)
    except StepError as error:
        return failed_by_engine(step, error)

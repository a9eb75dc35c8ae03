"""UNREADABLE: a workflow whose secrets do not open. No step runs without them: a person is asked."""

from __future__ import annotations

from datetime import timedelta

from workflows.definition import WorkflowDefinition
from workflows.engine.executor import Failed, Held, failed_by_engine
from workflows.errors import StepError, Suspend
from workflows.models import Attempt, Workflow
from workflows.sealing import payloads
from workflows.sealing.envelopes import Unreadable
from workflows.waits import require_go_ahead, withdraw

UNREADABLE_TASK_TYPE = "secrets_unreadable"
# A whole weekend, as for other questions of the engine: only this one row waits for the answer.
TIMEOUT = timedelta(hours=72)


def open_secrets(definition: WorkflowDefinition, workflow: Workflow) -> Held | Failed | None:
    """Put the secrets of the payload in clear, for the steps. What to do instead of running it if they do not open."""
    try:
        payloads.open_for_steps(definition, workflow)
    except Unreadable as unreadable:
        return _ask(definition, workflow, str(unreadable))
    return None


def _ask(definition: WorkflowDefinition, workflow: Workflow, why: str) -> Held | Failed:
    step = definition.find_or_removed_step(workflow.current_step or definition.steps[0].name)
    try:
        for _ in range(2):  # a yes was to another try, and this was it: the question is asked anew
            require_go_ahead(
                workflow,
                UNREADABLE_TASK_TYPE,
                question="A secret that was sent cannot be read. May it be tried again?",
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

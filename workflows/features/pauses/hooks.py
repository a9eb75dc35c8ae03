"""Pauses in the workers: maintenance begins one when no worker has its workflow any more. No claim knows of them.

What wakes a paused workflow, its cancellation with its parent for example, may be withdrawn before a worker takes it
up: then it goes on pausing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from workflows.definition import WorkflowDefinition
from workflows.engine.extension import Feature, Instead
from workflows.engine.maintenance import Task
from workflows.engine.outcomes import Held
from workflows.errors import Suspend
from workflows.features.pauses import operations
from workflows.models import Attempt, Workflow
from workflows.models.workflow import PAUSED
from workflows.state.attempt_log import OpenAttempt
from workflows.state.transitions import UNTIL_RESUMED


class Pauses(Feature):
    chores: ClassVar[Mapping[str, Task]] = {"keep up with pauses": Task(operations.keep_up)}

    def gate(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> Instead | None:
        if workflow.waiting_for != PAUSED:
            return None
        return Held(workflow.current_step, Suspend(PAUSED, wake_on=(), until=UNTIL_RESUMED), Attempt.Outcome.WAITING)

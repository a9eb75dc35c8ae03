"""The business key's part in a claim (docs/adr/0020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from workflows.definition import WorkflowDefinition, definitions
from workflows.engine.extension import Feature, Instead
from workflows.engine.maintenance import Task
from workflows.engine.outcomes import Compensated, Complete, Failed, Outcome
from workflows.features.business_key import duplicates, holders
from workflows.models import Workflow
from workflows.state.attempt_log import OpenAttempt


class BusinessKey(Feature):
    chores: ClassVar[Mapping[str, Task]] = {"wake duplicates": Task(holders.wake_waiting)}

    def gate(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> Instead | None:
        return duplicates.judge(definition, workflow, attempt) if definition.business_key else None

    def after_commit(self, workflow: Workflow, outcome: Outcome | None) -> None:
        definition = definitions().get(workflow.workflow_type)
        if definition and definition.business_key and isinstance(outcome, Complete | Failed | Compensated):
            holders.wake_those_behind(workflow, is_complete=isinstance(outcome, Complete))

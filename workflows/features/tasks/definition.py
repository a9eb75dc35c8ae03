"""DEFINITION of a task: a workflow of one step, which calls the task's function."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.db import transaction
from pydantic import BaseModel

from workflows.definition import Brake, Retention, Retry, Step, WorkflowDefinition, WorkflowStep
from workflows.errors import StepError
from workflows.features.tasks import results
from workflows.features.tasks.backend import WorkflowsBackend
from workflows.features.tasks.contract import Task, TaskContext, normalize_json, task_started
from workflows.models import Workflow
from workflows.redaction import class_name, place

# A task without retries is tried once. The brake would park it after its failure, and try it again.
NO_BRAKE = Brake(failures=0)


class Returned(BaseModel):
    """The context of a task's workflow."""

    value: Any = None


class TaskDefinition(WorkflowDefinition):
    """The definition of a task. It is named by the task's path, and only `enqueue` starts it."""

    by_clients = False

    def __init__(self, task: Task[..., Any], backend: WorkflowsBackend) -> None:
        self.task = task
        retries = getattr(task, "retries", 0)
        super().__init__(
            name=task.module_path,
            steps=[Step(step_of(task, retries, type(backend)), timeout=backend.timeout)],
            context_class=Returned,
            retry=Retry(max_attempts=1 + retries),
            brake=None if retries else NO_BRAKE,
            queue=task.queue_name,
            priority=task.priority,
            public_fields=("backend", "run_after"),
            retention=Retention(**backend.retention),
        )


def step_of(task: Task[..., Any], retries: int, sender: type[WorkflowsBackend]) -> WorkflowStep:
    """The one step of the task's workflow. Errors of receivers of `task_started` are logged."""

    def run(*, workflow: Workflow, context: Returned) -> Mapping[str, Any]:
        result = results.find(workflow.key)
        task_started.send_robust(sender, task_result=result)
        first = [TaskContext(task_result=result)] if task.takes_context else []
        try:
            value = normalize_json(task.call(*first, *result.args, **result.kwargs))
        except StepError:  # it says itself whether another try is in vain
            raise
        except Exception as error:
            if retries:
                raise results.Raised(f"{class_name(error)} at {place(error)}", code=class_name(error)) from error
            raise
        transaction.on_commit(partial(results.tell_finished, workflow.key), robust=True)
        return {"value": value}

    run.__name__ = task.name
    return run

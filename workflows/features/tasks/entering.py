"""ENTER: store a task in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workflows import request_ids
from workflows.definition import definitions
from workflows.features.tasks import results
from workflows.features.tasks.backend import WorkflowsBackend
from workflows.features.tasks.contract import InvalidTask, Task, TaskResult, normalize_json
from workflows.features.tasks.definition import TaskDefinition
from workflows.intake.submissions import new_key, start_here
from workflows.postgres.jsonb import as_json, document_of


def enter(
    task: Task[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any], backend: WorkflowsBackend
) -> TaskResult[..., Any]:
    """Store a task in the caller's transaction, and return its result. Raises what `WorkflowsBackend.enqueue` does."""
    found = definitions().get(task.module_path)
    if not isinstance(found, TaskDefinition):
        raise InvalidTask(
            f"No worker finds {task.module_path}: declare it in the tasks.py of an installed app, or name its "
            "module in TASKS: 'OPTIONS': {'modules': [...]}."
        )
    if any(getattr(found.task, each, 0) != getattr(task, each, 0) for each in ("retries", "takes_context")):
        raise InvalidTask(f"{task.module_path} is two tasks, with other retries or context: write two functions.")
    sent = as_json({"args": normalize_json(list(args)), "kwargs": normalize_json(dict(kwargs))})
    run_after = task.run_after and task.run_after.isoformat()
    entry = start_here(
        TaskDefinition(task, backend),  # its own queue and priority, by `using()`
        tenant="",
        business_key=None,
        payload=document_of({**sent, "backend": backend.alias, "run_after": run_after}),
        idempotency_key=new_key(),
        request_id=request_ids.current.get(),
        due=task.run_after,
    )
    return results.find(str(entry.key))

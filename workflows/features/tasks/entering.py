"""ENTER: store a task in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import uuid4

from workflows import request_ids
from workflows.definition import definitions
from workflows.features.tasks import results
from workflows.features.tasks.backend import WorkflowsBackend
from workflows.features.tasks.contract import InvalidTask, Task, TaskResult, normalize_json
from workflows.features.tasks.definition import TaskDefinition
from workflows.intake.submissions import start_here
from workflows.postgres.jsonb import document_of, ensure_storable


def enter(
    task: Task[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any], backend: WorkflowsBackend
) -> TaskResult[..., Any]:
    """Store a task in the caller's transaction, and return its result. Raises what `WorkflowsBackend.enqueue` does."""
    if not isinstance(definitions().get(task.module_path), TaskDefinition):
        raise InvalidTask(
            f"No worker finds {task.module_path}: declare it in the tasks.py of an installed app, or name its "
            "module in TASKS: 'OPTIONS': {'modules': [...]}."
        )
    sent = {"args": normalize_json(list(args)), "kwargs": normalize_json(dict(kwargs))}
    ensure_storable(sent)
    run_after = task.run_after and task.run_after.isoformat()
    entry = start_here(
        TaskDefinition(task, backend),  # its own queue and priority, by `using()`
        tenant="",
        business_key=None,
        payload=document_of({**sent, "backend": backend.alias, "run_after": run_after}),
        idempotency_key=uuid4(),
        request_id=request_ids.current.get(),
        due=task.run_after,
    )
    return results.find(str(entry.key))

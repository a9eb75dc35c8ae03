"""RESULTS: what `TaskResult` says of a task's row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings

from workflows.definition import definitions
from workflows.errors import RetryableStepError
from workflows.features.tasks.contract import (
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_finished,
)
from workflows.models import Attempt, State, Workflow

STATUSES = {
    State.COMPLETE: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
    State.RUNNING: TaskResultStatus.RUNNING,
}


class Raised(RetryableStepError):
    """A task with retries has raised an exception. Its code is the path of the exception's class."""


_RAISED = f"{Raised.__module__}.{Raised.__qualname__}"


def find(result_id: str) -> TaskResult[..., Any]:
    """The result with this id. Raises TaskResultDoesNotExist."""
    try:
        row = Workflow.objects.with_state().filter(idempotency_key=UUID(result_id), emptied_at=None).first()
    except (ValueError, AttributeError, TypeError):  # no UUID
        row = None
    task = getattr(definitions().get(row.workflow_type), "task", None) if row else None
    if row is None or not isinstance(task, Task):
        raise TaskResultDoesNotExist(result_id)
    return _result_of(row, task)


def tell_finished(result_id: str) -> None:
    """Send Django's signal for a result that has finished, after its COMMIT. Errors of receivers are logged."""
    result = find(result_id)
    task_finished.send_robust(type(result.task.get_backend()), task_result=result)


def _result_of(row: Workflow, task: Task[..., Any]) -> TaskResult[..., Any]:
    tried = Attempt.objects.filter(workflow=row.pk).order_by("number")
    # Not those that put the row back before they called the task.
    attempts = [each for each in tried if each.steps or each.outcome != Attempt.Outcome.RESCHEDULED]
    result: TaskResult[..., Any] = TaskResult(
        task=_as_enqueued(row, task),
        id=row.key,
        status=STATUSES.get(State(row.state), TaskResultStatus.READY),
        enqueued_at=row.created_at,
        started_at=attempts[0].opened_at if attempts else None,
        last_attempted_at=attempts[-1].opened_at if attempts else None,
        finished_at=row.completed_at,
        args=row.payload["args"],
        kwargs=row.payload["kwargs"],
        backend=row.payload["backend"],
        errors=list(_errors(row, attempts)),
        worker_ids=[attempt.worker for attempt in attempts],
    )
    object.__setattr__(result, "_return_value", row.context.get("value"))
    return result


def _as_enqueued(row: Workflow, task: Task[..., Any]) -> Task[..., Any]:
    """The task as the row has it: it is not validated again, because its queue or backend may be gone from TASKS."""
    backend, run_after = row.payload["backend"], row.payload["run_after"]
    enqueued = {
        "queue_name": row.queue,
        "priority": row.priority,
        "backend": backend if backend in getattr(settings, "TASKS", {}) else task.backend,
        "run_after": run_after and datetime.fromisoformat(run_after),
    }
    copy = object.__new__(type(task))
    for field in fields(task):
        object.__setattr__(copy, field.name, enqueued.get(field.name, getattr(task, field.name)))
    return copy


def _errors(row: Workflow, attempts: list[Attempt]) -> Iterator[TaskError]:
    """The errors of the attempts. No exception's message is stored, and a traceback has no values (docs/data.md)."""
    met = [(entry, attempt.traceback) for attempt in attempts for entry in attempt.steps if "error_class" in entry]
    for entry, traceback in met:
        yield _error(entry["error_class"], entry["error_code"], entry["error_message"], traceback)
    told = [(entry["error_class"], entry["error_message"]) for entry, _ in met]
    # That of a cancellation, or of the engine.
    if row.last_error_class and (row.last_error_class, row.last_error_message) not in told:
        yield _error(row.last_error_class, row.last_error_code, row.last_error_message)


def _error(error_class: str, code: str, message: str, traceback: str = "") -> TaskError:
    path = code if error_class == _RAISED else error_class
    told = [*filter(None, [traceback]), f"{path}: {message}", ""]
    return TaskError(exception_class_path=path if "." in path else f"builtins.{path}", traceback="\n".join(told))

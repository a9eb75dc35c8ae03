"""BACKEND for `django.tasks`: each task is a workflow of one step (docs/background-tasks.md).

Tasks are declared while apps are loaded, so nothing here imports a model before a task is enqueued or looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from workflows.features.tasks import contract
from workflows.features.tasks.contract import InvalidTask, Task, TaskResult

if TYPE_CHECKING:
    AnyTask = Task[..., Any]
else:
    AnyTask = Task  # Django's own takes no parameters at runtime

P = ParamSpec("P")
T = TypeVar("T")

# Seconds. Longer than a request may take, which is why it is a task.
TIMEOUT = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetriedTask(AnyTask):
    """A task that is tried again after an exception, `retries` times: `@workflows.tasks.task(retries=3)`."""

    retries: int = 0


@overload
def task(function: Callable[P, T], /) -> Task[P, T]: ...


@overload
def task(*, retries: int = 0, **options: Any) -> Callable[[Callable[P, T]], Task[P, T]]: ...


def task(function: Callable[..., Any] | None = None, /, *, retries: int = 0, **options: Any) -> Any:
    """Declare a task as `django.tasks.task` does, with `retries`, which that of Django 6.0 does not take.

    Raises InvalidTask for `retries` of a backend that has none, and what Django raises.
    """

    def declare(called: Callable[..., Any]) -> Task[..., Any]:
        declared: Task[..., Any] = contract.task(**options)(called)
        if not retries:
            return declared
        if not isinstance(declared, RetriedTask):
            raise InvalidTask(
                f"The backend {declared.backend!r} has no retries: workflows.tasks has one that has, and two for tests."
            )
        return replace(declared, retries=retries)

    return declare(function) if function else declare


class DummyBackend(contract.DummyBackend):
    """Django's backend for tests, with tasks that have `retries`: it only keeps what is enqueued."""

    task_class = RetriedTask


class ImmediateBackend(contract.ImmediateBackend):
    """Django's backend for tests, with tasks that have `retries`: it runs a task once, where it is enqueued."""

    task_class = RetriedTask


class WorkflowsBackend(contract.BaseTaskBackend):
    """A backend that stores each task as a workflow, which `manage.py runworker` runs.

    Options: `modules` that declare tasks, beside `tasks` of each installed app; `timeout` of a task, in seconds; and
    `retention`, a dict: how long finished tasks are kept (`workflows.definition.Retention`).
    """

    task_class = RetriedTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    # The columns `workflow_type` and `queue` of a workflow.
    LONGEST_PATH, LONGEST_QUEUE = 100, 63

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        modules = self.options.get("modules", ())
        self.modules: Sequence[str] = [modules] if isinstance(modules, str) else modules
        self.timeout = float(self.options.get("timeout", TIMEOUT))
        self.retention: Mapping[str, timedelta] = self.options.get("retention", {})

    def validate_task(self, task: Task[..., Any]) -> None:
        super().validate_task(task)
        if len(task.module_path) > self.LONGEST_PATH:
            raise InvalidTask(f"The path of a task has at most {self.LONGEST_PATH} characters: {task.module_path}.")
        if not 0 < len(task.queue_name) <= self.LONGEST_QUEUE:  # QUEUES may be empty, which allows any name
            raise InvalidTask(f"The name of a queue has 1 to {self.LONGEST_QUEUE} characters: {task.queue_name!r}.")
        retries = getattr(task, "retries", 0)
        if not isinstance(retries, int) or retries < 0:
            raise InvalidTask(f"retries is a whole number, 0 or more: {retries!r}.")

    def enqueue(self, task: Task[P, T], args: Iterable[Any], kwargs: Mapping[str, Any]) -> TaskResult[P, T]:
        """Store the task in the caller's transaction: it runs when that commits, or not at all.

        Raises InvalidTask for a task that no worker would find or that is declared twice, TypeError for arguments that
        are not JSON, and ValueError for those that PostgreSQL cannot keep, or of more than 4 MiB.
        """
        from workflows.features.tasks import entering

        self.validate_task(task)
        result = cast("TaskResult[P, T]", entering.enter(task, args, kwargs, self))
        contract.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """The task's result as it is now. Raises TaskResultDoesNotExist, also after retention has emptied it."""
        from workflows.features.tasks import results

        return results.find(result_id)

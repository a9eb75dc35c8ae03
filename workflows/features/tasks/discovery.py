"""DISCOVERY: the tasks of this release, each as a definition. No row decides what is imported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from django.apps import apps
from django.conf import settings
from django.utils.module_loading import module_has_submodule

from workflows.features.tasks.backend import WorkflowsBackend
from workflows.features.tasks.contract import Task, task_backends
from workflows.features.tasks.definition import TaskDefinition


def definitions() -> Iterable[TaskDefinition]:
    """The tasks in the `tasks` modules of installed apps, and in those that OPTIONS names.

    A task of another backend may be enqueued in ours: `using(backend=...)`.
    """
    if not (backends := ours()):
        return ()
    declared = [
        each for name in modules(backends) for each in vars(import_module(name)).values() if isinstance(each, Task)
    ]
    # A task that one module imports from another is declared once.
    return {task.module_path: TaskDefinition(task, _backend(task, backends)) for task in declared}.values()


def modules(backends: Sequence[WorkflowsBackend]) -> list[str]:
    """The modules that declare tasks."""
    own = [f"{app.name}.tasks" for app in apps.get_app_configs() if module_has_submodule(app.module, "tasks")]
    return own + [name for backend in backends for name in backend.modules]


def _backend(task: Task[..., Any], backends: Sequence[WorkflowsBackend]) -> WorkflowsBackend:
    return next((backend for backend in backends if backend.alias == task.backend), backends[0])


def ours() -> Sequence[WorkflowsBackend]:
    """Our backends in the setting TASKS."""
    aliases = getattr(settings, "TASKS", {})
    return [each for alias in aliases if isinstance(each := task_backends[alias], WorkflowsBackend)]

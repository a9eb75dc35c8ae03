"""TASKS, for the setting TASKS: a backend for `django.tasks`, and Django's own two for tests; and `task`, with
`retries` on each version of Django (docs/background-tasks.md).
"""

from workflows.features.tasks.backend import DummyBackend, ImmediateBackend, WorkflowsBackend, task

__all__ = ["DummyBackend", "ImmediateBackend", "WorkflowsBackend", "task"]

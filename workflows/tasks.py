"""TASKS, for the setting TASKS: a backend for `django.tasks`, and Django's own two for tests
(docs/background-tasks.md).
"""

from workflows.features.tasks.backend import DummyBackend, ImmediateBackend, WorkflowsBackend

__all__ = ["DummyBackend", "ImmediateBackend", "WorkflowsBackend"]

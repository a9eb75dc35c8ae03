from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from pytest_django import Settings

from tests.engine import worker
from workflows.definition import definitions
from workflows.features.tasks.contract import TaskResultStatus
from workflows.models import Workflow

BACKEND = "workflows.tasks.WorkflowsBackend"
JOBS = "tests.workflows.features.tasks.jobs"
SUCCESSFUL, FAILED, READY, RUNNING = (
    TaskResultStatus.SUCCESSFUL,
    TaskResultStatus.FAILED,
    TaskResultStatus.READY,
    TaskResultStatus.RUNNING,
)


@pytest.fixture
def jobs(settings: Settings, engine: None) -> Iterator[ModuleType]:
    """The tasks of this folder, in a project that has no other workflows."""
    settings.WORKFLOWS = []
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": {"modules": [JOBS]}}}
    definitions.cache_clear()
    found = import_module(JOBS)
    settings.TASKS = {**settings.TASKS}  # forget the backend that the first import made: a test may change its options
    found.seen.clear()
    yield found
    definitions.cache_clear()


def run(result: Any) -> Any:
    """Let a worker do one task; the result as it is then."""
    assert worker().process_next(), "nothing was due"
    result.refresh()
    return result


def row_of(result: Any) -> Workflow:
    return Workflow.objects.get(idempotency_key=result.id)

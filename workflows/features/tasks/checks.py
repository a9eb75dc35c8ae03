"""CHECKS of the setting TASKS."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.checks import CheckMessage, Error

from workflows import extras
from workflows.definition import Retention
from workflows.redaction import class_name, place
from workflows.spelling import did_you_mean

if TYPE_CHECKING:
    from workflows.features.tasks.backend import WorkflowsBackend

OPTIONS = ("modules", "timeout", "retention")


def check_tasks(app_configs: Any = None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Whether our backends have what they need, and name queues and modules that can be."""
    if not getattr(settings, "TASKS", None):
        return
    try:
        discovery = extras.load("workflows.features.tasks.discovery")
    except extras.ExtraMissing as missing:
        yield Error("TASKS is set, and this Django has no tasks.", hint=str(missing), id="workflows.E038")
        return
    for backend in discovery.ours():
        if wrong := [queue for queue in backend.queues if not 0 < len(queue) <= backend.LONGEST_QUEUE]:
            hint = "A queue has a name of 1 to 63 characters."
            yield Error(f"TASKS names queues that no worker can have: {wrong}.", hint=hint, id="workflows.E039")
        for fault in _wrong_options(backend):
            hint = "docs/background-tasks.md has the OPTIONS."
            yield Error(f"TASKS has OPTIONS that cannot be: {fault}", hint=hint, id="workflows.E047")
    for name in discovery.modules(discovery.ours()):
        try:
            import_module(name)
        except Exception as error:
            hint = "Name modules by their dotted paths: 'modules': ['shop.jobs']."
            if isinstance(error, TypeError) and "retries" in str(error):
                hint = "Declare it by the task of ours: from workflows.tasks import task."
            told = f"The tasks of {name!r} cannot be imported: {class_name(error)}: {error} ({place(error)})."
            yield Error(told, hint=hint, id="workflows.E042")


def _wrong_options(backend: WorkflowsBackend) -> Iterator[str]:
    for name in sorted(backend.options.keys() - {*OPTIONS}):
        yield f"none is called {name!r}.{did_you_mean(name, OPTIONS)}"
    if not 0 < backend.timeout < inf:
        yield f"a timeout is a number of seconds above 0, and not {backend.timeout}."
    try:
        Retention(**backend.retention)
    except (TypeError, ValueError) as error:
        yield f"{error}"

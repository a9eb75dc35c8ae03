"""What the tasks of `django.tasks` add: a definition for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.conf import settings

from workflows import extras
from workflows.extension import Extension
from workflows.features.tasks.checks import check_tasks

if TYPE_CHECKING:
    from workflows.definition import WorkflowDefinition


class TasksExtension(Extension):
    checks = (check_tasks,)

    def definitions(self) -> Iterable[WorkflowDefinition]:
        if not getattr(settings, "TASKS", None):
            return ()
        found: Iterable[WorkflowDefinition] = extras.load("workflows.features.tasks.discovery").definitions()
        return found

"""Tasks in the workers and in the console: a task that has failed, for whatever reason, is announced."""

from __future__ import annotations

from functools import partial

from django.db import transaction

from workflows.definition import definitions
from workflows.engine.extension import Feature
from workflows.models import Workflow


class Tasks(Feature):
    def told(self, workflow: Workflow, what: str) -> None:
        if what == "failed" and hasattr(definitions().get(workflow.workflow_type), "task"):
            from workflows.features.tasks import results  # needs the backport where Django has no tasks

            transaction.on_commit(partial(results.tell_finished, workflow.key), robust=True)

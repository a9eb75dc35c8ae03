"""Deferred steps in a claim: a step that failed is deferred, and runs when nothing else is due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workflows.definition import definitions
from workflows.engine.extension import Feature
from workflows.features.deferred_steps import source
from workflows.models import Workflow


class DeferredSteps(Feature):
    def left_undone(self, workflow: Workflow, entry: Mapping[str, Any]) -> None:
        if entry.get("follow_up"):
            source.add(workflow, definitions()[workflow.workflow_type].find_or_removed_step(entry["step"]))

    def source(self, queue: str, reads: Sequence[str]) -> source.DeferredSteps:
        return source.DeferredSteps(queue, reads)

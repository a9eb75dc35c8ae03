"""The key under which a downstream performs a step's call once, however often we repeat it."""

from __future__ import annotations

from workflows.models import Workflow


def key_for(workflow: Workflow, step: str) -> str:
    """Name the workflow and the step; never an attempt, a position in the list or a release: a retry must hit it."""
    return f"{workflow.key}:{step}"

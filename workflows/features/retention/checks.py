"""Checks which definitions do not say how long their workflows are kept."""

from __future__ import annotations

from typing import Any

from django.core.checks import Warning

from workflows.checks import Messages, readable_definitions


def check_retention(**kwargs: Any) -> Messages:
    """Each definition says how long its workflows are kept."""
    for definition in readable_definitions().values():
        if "retention" not in definition.stated:
            yield Warning(
                f"The definition {definition.name!r} does not say how long its workflows are kept: what was sent, and "
                f"what came of it, is deleted {definition.retention.content.days} days after it has finished.",
                hint="Say it: WorkflowDefinition(..., retention=Retention(content=...)). See docs/data.md.",
                obj=definition,
                id="workflows.W022",
            )

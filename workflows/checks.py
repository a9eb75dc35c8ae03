"""System checks of the definitions: what would otherwise be found out by the first workflow that runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.utils.module_loading import import_string

from workflows.definition import WorkflowDefinition


def check_definitions(**kwargs: Any) -> list[CheckMessage]:
    """Every path in WORKFLOWS leads to a definition with steps; names of definitions, and of its steps, are unique."""
    messages: list[CheckMessage] = []
    known: list[WorkflowDefinition] = []
    for path in settings.WORKFLOWS:
        try:
            definition = import_string(path)
        except ImportError as error:
            messages.append(
                Error(
                    f"WORKFLOWS names {path!r}, which cannot be imported: {error}",
                    hint="Give the dotted path of a WorkflowDefinition, like 'onboarding.workflow.ONBOARDING'.",
                    id="workflows.E001",
                )
            )
            continue
        if not isinstance(definition, WorkflowDefinition):
            messages.append(
                Error(
                    f"WORKFLOWS names {path!r}, which is a {type(definition).__name__}.",
                    hint="Give the dotted path of a WorkflowDefinition, like 'onboarding.workflow.ONBOARDING'.",
                    id="workflows.E002",
                )
            )
            continue
        known.append(definition)
        messages += _check_steps(definition)
    for name in _repeated(definition.name for definition in known):
        messages.append(
            Error(
                f"Two definitions in WORKFLOWS are named {name!r}.",
                hint="Rows are found by this name: each definition needs one of its own.",
                id="workflows.E003",
            )
        )
    return messages


def _check_steps(definition: WorkflowDefinition) -> list[CheckMessage]:
    if not definition.steps:
        return [Error(f"The definition {definition.name!r} has no steps.", obj=definition, id="workflows.E004")]
    names = (name for step in definition.steps for name in {step.name, *step.formerly})
    return [
        Error(
            f"Two steps of {definition.name!r} are, or were, named {name!r}.",
            hint="A step is known by its name: give one of them another, Step(..., name=...).",
            obj=definition,
            id="workflows.E005",
        )
        for name in _repeated(names)
    ]


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]

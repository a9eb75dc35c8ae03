"""System checks of the types of options: one of a wrong type would fail only when a workflow needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from django.core.checks import Error
from pydantic import BaseModel

from workflows.definition import Retention, Retry, WorkflowDefinition

Kinds = Mapping[str, tuple[type | tuple[type, ...], str]]

_MODEL = "a class of yours that inherits from pydantic.BaseModel"

# The types of options whose wrong type nothing else notices, with an example of each.
_OF_DEFINITIONS: Kinds = {
    "name": (str, "name='order'"),
    "queue": (str, "queue='default'"),
    "priority": (int, "priority=0"),
    "context_class": (BaseModel, f"context_class=OrderContext, {_MODEL}"),
    "input_class": (BaseModel, f"input_class=Order, {_MODEL}"),
    "retry": (Retry, "retry=Retry(max_attempts=5)"),
    "expires_after": (timedelta, "expires_after=timedelta(days=7)"),
    "retention": (Retention, "retention=Retention(content=timedelta(days=90))"),
}
_OF_STEPS: Kinds = {
    "name": (str, "name='charge_card'"),
    "key_ttl": (timedelta, "key_ttl=timedelta(hours=24)"),
    "timeout": ((int, float), "timeout=30, in seconds"),
    "settle": ((int, float), "settle=30, in seconds"),
    "retry": (Retry, "retry=Retry(max_attempts=5)"),
    "follow_up": (Retry, "follow_up=Retry(max_attempts=5)"),
    # A text would be taken for its letters.
    **{name: ((tuple, list), f"{name}=('charge_card',), with a comma") for name in ("formerly", "needs", "returns")},
}


def faults(definition: WorkflowDefinition) -> list[Error]:
    """The options of a wrong type. Other checks rely on the types, and do not look at such a definition."""
    found = list(_faults(f"The definition {definition.name!r}", definition, _OF_DEFINITIONS))
    for step in definition.steps:
        found += _faults(f"The step {step.name!r} of {definition.name!r}", step, _OF_STEPS)
    return found


def _faults(who: str, stated: Any, kinds: Kinds) -> Iterator[Error]:
    for option, (kind, example) in kinds.items():
        value = getattr(stated, option)
        # A model is stated as a class, any other option as an object.
        is_one = isinstance(value, type) and issubclass(value, kind) if kind is BaseModel else isinstance(value, kind)
        if value is not None and not is_one:
            message = f"{who} has {option}={value!r:.50}, of type {type(value).__name__}."
            yield Error(message, hint=f"Write {example}.", id="workflows.E043")

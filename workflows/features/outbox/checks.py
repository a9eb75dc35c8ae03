"""Checks of OUTBOX_DESTINATIONS, and of what the definitions publish."""

from __future__ import annotations

from typing import Any

from django.core.checks import Error, Warning
from django.core.exceptions import ImproperlyConfigured

from workflows.checks import Messages, readable_definitions
from workflows.features.outbox.destinations import destinations, taking
from workflows.features.outbox.events import OURS


def check_outbox(**kwargs: Any) -> Messages:
    """OUTBOX_DESTINATIONS can be read, and takes what definitions publish."""
    try:
        known = destinations().values()
    except ImproperlyConfigured as error:
        yield Error(str(error), hint="docs/outbox.md has an example.", id="workflows.E015")
        return
    if not known:  # an installation without an outbox needs no warning
        return
    for definition in readable_definitions().values():
        lost = [f"{OURS}{each}" for each in sorted(definition.publishes)]
        if lost := [topic for topic in lost if not taking(topic)]:
            yield Warning(
                f"The definition {definition.name!r} publishes {', '.join(lost)}, which no destination takes.",
                hint="Name them in OUTBOX_DESTINATIONS. Nothing is stored for a destination that comes later.",
                obj=definition,
                id="workflows.W025",
            )

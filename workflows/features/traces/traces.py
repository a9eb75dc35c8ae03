"""TRACES: sends the spans of a process to the endpoint that OpenTelemetry's variables name (docs/adr/0023)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from workflows import extras, trace_context

if TYPE_CHECKING:
    from workflows.features.traces.spans import Spans

logger = logging.getLogger(__name__)


def begin() -> Spans | None:
    """Begin to make this process's spans; None without an endpoint. Call it after the fork: it starts a thread."""
    if not trace_context.is_on():
        return None
    try:
        made: Spans = extras.load("workflows.features.traces.spans").Spans()
    except extras.ExtraMissing as missing:
        logger.warning("there are no traces: %s", str(missing))
        return None
    return made

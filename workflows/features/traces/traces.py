"""TRACES: where the spans of a process go, if anywhere (docs/adr/0023). OpenTelemetry's own variables say where."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from workflows import extras, trace_context

if TYPE_CHECKING:
    from workflows.features.traces.spans import Spans

logger = logging.getLogger(__name__)


def begin() -> Spans | None:
    """What makes this process's spans; None when there is no endpoint. Called after the fork: it starts a thread."""
    if not trace_context.is_on():
        return None
    try:
        made: Spans = extras.load("workflows.features.traces.spans").Spans()
    except extras.ExtraMissing as missing:
        logger.warning("there are no traces: %s", str(missing))
        return None
    return made

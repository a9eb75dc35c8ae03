"""TRACES: where the spans of attempts go, if anywhere (docs/adr/0023). OpenTelemetry's own variables say where."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workflows.engine.spans import Spans

logger = logging.getLogger(__name__)


def begin() -> Spans | None:
    """What makes this process's spans; None when there is no endpoint. Called after the fork: it starts a thread."""
    endpoints = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if disabled or os.environ.get("OTEL_TRACES_EXPORTER") == "none" or not any(map(os.environ.get, endpoints)):
        return None
    try:
        from workflows.engine.spans import Spans
    except ImportError as error:
        logger.warning("there are no traces, for a package is missing (%s): pip install '.[traces]'", error.name)
        return None
    return Spans()

"""Log lines without personal data: the message of an exception may quote a patient's."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from types import TracebackType

from workflows import request_ids
from workflows.redaction import frames

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class Formatter(logging.Formatter):
    """Writes the class of an uncaught exception, and where it came from; never its message."""

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 (logging's name)
        return frames(ei[1]) if ei[1] else ""


class JsonFormatter(Formatter):
    """One JSON object a line, with these fields only: what a library passes as `extra` may hold anything."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "process": record.process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := request_ids.current.get():
            line["request_id"] = request_id
        if record.exc_info:  # `record.exc_text` may be another formatter's, with the message
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)

"""Log lines without personal data: the message of an exception may quote a patient's."""

from __future__ import annotations

import logging
from types import TracebackType

from workflows.redaction import frames

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class Formatter(logging.Formatter):
    """Writes the class of an uncaught exception, and where it came from; never its message."""

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 (logging's name)
        return frames(ei[1]) if ei[1] else ""

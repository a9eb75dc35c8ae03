"""Log lines without personal data: an exception's message may quote a patient."""

from __future__ import annotations

import json
import logging
import sys
import threading
import warnings
from collections.abc import Mapping
from copy import copy
from datetime import UTC, datetime
from itertools import repeat
from types import TracebackType
from typing import Any

from workflows import request_ids
from workflows.redaction import class_name, frames

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

logger = logging.getLogger(__name__)

LINE = "%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s"


class Formatter(logging.Formatter):
    """One line for each record, followed by an uncaught exception's class and location, but never its message.

    Text from a client (a path, a name) cannot look like another line: unprintable characters are escaped.
    """

    def format(self, record: logging.LogRecord) -> str:
        return super().format(without_messages(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 (logging's name)
        return frames(ei[1]) if ei[1] else ""


class JsonFormatter(Formatter):
    """One JSON object in each line, with only these fields: a library's `extra` may contain anything."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "process": record.process,
            "logger": record.name,
            "message": without_messages(record).getMessage(),
        }
        if request_id := request_ids.current.get():
            line["request_id"] = request_id
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def without_messages(record: logging.LogRecord) -> logging.LogRecord:
    """The record with exceptions replaced by their classes, because libraries quote them."""
    if not (record.exc_info or record.exc_text or record.name == "asyncio" or _quotes(record)):
        return record  # nearly all
    shown = copy(record)
    shown.exc_text = None  # written by another formatter, with the message
    shown.msg = _named(record.msg)
    if isinstance(record.args, Mapping):
        shown.args = {name: _named(value) for name, value in record.args.items()}
    elif record.args:
        shown.args = tuple(map(_named, record.args))
    if record.name == "asyncio" and record.levelno >= logging.ERROR:  # quotes a task's or callback's arguments
        shown.msg, shown.args = "an error that nobody has caught", ()
    return shown


def _quotes(record: logging.LogRecord) -> bool:
    """Whether an exception is to be printed. (`map`, because each log line comes by here.)"""
    args = record.args.values() if isinstance(record.args, Mapping) else record.args or ()
    return any(map(isinstance, (record.msg, *args), repeat(BaseException)))


def _named(value: Any) -> Any:
    return class_name(value) if isinstance(value, BaseException) else value


def printable(text: str) -> str:
    """The text with line ends, control characters and changes of the writing direction escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def take_over() -> None:
    """Log what Python would print, without messages: uncaught errors of any thread, and warnings.

    No record says from which line it comes, or of which thread: no line shows that, and it would be a third of its cost
    (https://docs.python.org/3/howto/logging.html#optimization).
    """

    def log(error: Any) -> None:
        logger.error("an error that nobody has caught", exc_info=(error.exc_type, error.exc_value, error.exc_traceback))

    def log_the_last(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        logger.error("an error that nobody has caught", exc_info=(kind, error, trace))

    def log_warning(message: Any, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
        logger.warning("%s at %s:%s", category.__name__, filename, lineno)

    sys.excepthook, sys.unraisablehook, threading.excepthook = log_the_last, log, log
    logging._srcfile, logging.logThreads, logging.logMultiprocessing = None, False, False
    warnings.showwarning = log_warning  # type: ignore[assignment]

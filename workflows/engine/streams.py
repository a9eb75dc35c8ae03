"""STREAMS: a step may close standard output or error without harm to the worker's log or the next workflow."""

from __future__ import annotations

import sys
from typing import Any


def open_for_steps() -> None:
    """Give steps their own streams on the same files. A log handler keeps the stream that it has."""
    sys.stdout, sys.stderr = (
        open(file, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        for file in (1, 2)
    )


def reopen() -> None:
    """Open the streams again if a step has closed or detached one."""
    if not (_is_open(sys.stdout) and _is_open(sys.stderr)):
        open_for_steps()


def _is_open(stream: Any) -> bool:
    try:
        return not stream.closed
    except (AttributeError, ValueError):  # the stream is None, or has no buffer
        return False

"""STREAMS: a step may close standard output and error: neither the worker's log nor the next workflow notices."""

from __future__ import annotations

import sys
from typing import Any


def open_for_steps() -> None:
    """Give steps streams of their own on the same files. A log handler keeps the stream that it has."""
    sys.stdout, sys.stderr = (
        open(file, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        for file in (1, 2)
    )


def reopen() -> None:
    """Open them again if a step has closed, or detached, one."""
    if not (_is_open(sys.stdout) and _is_open(sys.stderr)):
        open_for_steps()


def _is_open(stream: Any) -> bool:
    try:
        return not stream.closed
    except (AttributeError, ValueError):  # None; or without a buffer
        return False

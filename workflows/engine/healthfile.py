"""HEALTH FILE: what a supervisor knows of its worker processes, for a health check that works without the database."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from workflows.engine.process_status import NEVER, WorkerStatus

# Seconds. A restart of PostgreSQL, or a failover, is over by then; people should know of a longer silence.
MAX_SILENCE = 180.0
# Seconds between two log messages about such a silence.
WARN_EVERY = 60.0
WRITE_EVERY = 5.0
# Seconds. Writing to the database how a worker ended may keep the supervisor busy for a few of them.
MAX_AGE = 30.0


class Report(NamedTuple):
    """Seconds since each wanted process last spoke to the database, and the latest trouble."""

    silences: list[float]
    trouble: str


def heard_until(status: WorkerStatus, now: float) -> float:
    """When a process last spoke to the database. A step needs no database, for as long as it may take."""
    in_step = min(now, status.deadline) if status.deadline != NEVER else 0.0
    return max(status.heard_at, in_step)


class InUse(Exception):
    """Another process writes the file."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other supervisors from writing the same file, because they would hide each other's end. Raises InUse or
    OSError.

    A separate file next to the health file is locked, because each `write` replaces the health file. A `lockf` lock
    ends with this process, however it ends, and forked processes do not inherit it.
    """
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise InUse from None
        yield


def write(path: Path, report: Report) -> None:
    """Replace the file in one step, so that nobody reads half of it. Raises OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(report._asdict()))
    beside.replace(path)


def failure_reason(path: Path, *, max_age: float = MAX_AGE, max_silence: float | None = MAX_SILENCE) -> str:
    """What is wrong with the workers of this file, in one line; empty when all is well.

    With `max_silence=None`, workers without a database count as well.
    """
    try:
        age = time.time() - path.stat().st_mtime
        report = Report(**json.loads(path.read_text()))
    except FileNotFoundError:
        return f"there is no {path}: no worker has been started, or all have ended"
    except (OSError, ValueError, TypeError) as error:
        return f"{path} cannot be read: {type(error).__name__}"
    if age < -max_age:  # otherwise it would look young for as long as the clock was wrong
        return f"the last word of the workers is {-age:.0f} s ahead of the clock: it was put back since"
    if age > max_age:
        return f"the last word of the workers is {age:.0f} s old: their supervisor hangs, or was killed"
    return silence(report, max_silence) if max_silence is not None else ""


def silence(report: Report, limit: float) -> str:
    """A sentence about processes without the database for longer than `limit`; empty when there are none."""
    silent = [seconds for seconds in report.silences if seconds > limit]
    if not silent:
        return ""
    because = f": {report.trouble}" if report.trouble else ""
    if len(silent) == len(report.silences):
        return f"no database for {_in_words(min(silent))}{because}"
    processes = "1 worker process has" if len(silent) == 1 else f"{len(silent)} worker processes have"
    return f"{processes} not spoken to the database for {_in_words(max(silent))}{because}"


def _in_words(seconds: float) -> str:
    return f"{seconds // 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"

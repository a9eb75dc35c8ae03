"""Real `manage.py` processes on the test database, and what the tests see of them from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
from django.conf import settings

from tests.servers import database_url, url_of

T = TypeVar("T")

# Seconds for what should happen at once. A machine that is busy may take some; only a defect takes all of them.
PATIENCE = 30.0


def environment(*definitions: str) -> dict[str, str]:
    """The environment of a release that knows `definitions`: dotted paths, or names of tests.acceptance.definitions."""
    paths = ",".join(name if "." in name else f"tests.acceptance.definitions.{name}" for name in definitions)
    release = {"WORKFLOWS": paths, "SUBMISSION_WORKFLOW": ""}
    return {**os.environ, "DEBUG": "1", "DATABASE_URL": database_url(), **release}


class Runworker:
    """One `manage.py runworker`, in a process group of its own, its output in the file `log`."""

    command = "runworker"

    def __init__(self, log: Path, definitions: tuple[str, ...], arguments: tuple[str, ...], **environ: str) -> None:
        self.log = log
        environ = {**environment(*definitions), **environ}
        environ["DATABASE_URL"] = url_of(self.command, environ["DATABASE_URL"])
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", self.command, *arguments],
                cwd=settings.BASE_DIR,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self.process.pid

    @property
    def output(self) -> str:
        return self.log.read_text()

    def children(self) -> list[int]:
        return children_of(self.pid)

    def signal(self, number: signal.Signals) -> None:
        """To the supervisor alone, as systemd or `kill` send it."""
        self.process.send_signal(number)

    def interrupt(self) -> None:
        """To the whole group, as Ctrl-C in a terminal does."""
        os.killpg(self.pid, signal.SIGINT)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Its exit code. Says what it had printed when it does not end in time."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.command} did not end within {seconds} s:\n{self.output}") from None

    def kill(self) -> None:
        """End it and whatever it has started, stopped ones too."""
        with suppress(ProcessLookupError):  # all of them have ended
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


def children_of(pid: int) -> list[int]:
    """The processes that `pid` has started and that have not ended."""
    with suppress(psutil.NoSuchProcess):
        return [child.pid for child in psutil.Process(pid).children() if is_alive(child.pid)]
    return []


def is_alive(pid: int) -> bool:
    return _status(pid) not in ("", psutil.STATUS_ZOMBIE)


def is_stopped(pid: int) -> bool:
    return _status(pid) == psutil.STATUS_STOPPED


def _status(pid: int) -> str:
    """Empty of a process that is gone."""
    with suppress(psutil.NoSuchProcess):
        return str(psutil.Process(pid).status())
    return ""


def until(look: Callable[[], T], *, seconds: float = PATIENCE, what: Callable[[], Any] = str) -> T:
    """What `look` returns, as soon as that is true. Fails after `seconds`, and tells `what()`."""
    give_up_at = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < give_up_at, f"not within {seconds} s: {what()}"
        time.sleep(0.02)
    return found


@contextmanager
def meanwhile(act: Callable[[], Any], *, every: float, times: int) -> Iterator[None]:
    """Do it so often, or until the end."""
    stop = threading.Event()

    def run() -> None:
        for _ in range(times):
            if stop.wait(every):
                break
            act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()

"""The demo's processes: started in order, watched, and stopped in reverse."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType

import httpx

from workflows.engine.supervisor import die_with

# Longer than a worker's grace period, because it may be in a slow call.
STOP_WITHIN = 45.0


class DemoError(Exception):
    """The demo cannot go on. The message says why, and what to do."""


def require_free_ports(ports: Mapping[str, int]) -> None:
    """Raise DemoError for the first of `ports` (purpose -> number) that another process listens on."""
    for purpose, port in ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise DemoError(
                    f"Port {port}, for the {purpose}, is taken ({error.strerror}). Stop what uses it, or give another: "
                    f'make demo ARGS="--{purpose}-port {port + 10}"'
                ) from None


def ignore_interruptions() -> None:
    """Ignore Ctrl-C from now on, here and in new processes: a second one must not leave some of them running."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


class Processes:
    """A context manager that stops all processes started inside at its end, the last one first.

    Each process writes to its own log in `logs`, and leads its own session, so that Ctrl-C reaches only the demo.
    """

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        self.logs = logs
        self.environment = {**os.environ, **environment}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        ignore_interruptions()
        for process in reversed(self._running.values()):
            process.terminate()
            try:
                process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(
        self,
        name: str,
        arguments: Iterable[str],
        *,
        program: str = sys.executable,
        ready: str | None = None,
        **environment: str,
    ) -> None:
        """Start `python <arguments>`. With `ready`, a URL, return when it answers. Raises DemoError if it does not."""
        with self._log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self.environment, **environment},
                start_new_session=True,
                preexec_fn=partial(die_with, os.getpid()),
            )
        deadline = monotonic() + 30
        while ready:
            self.check()
            try:
                if httpx.get(ready, timeout=1).is_success:
                    break
            except httpx.HTTPError:
                pass
            if monotonic() > deadline:
                raise DemoError(f"The {name} does not answer at {ready}; see {self._log(name)}")
            sleep(0.05)

    def check(self) -> None:
        """Raise DemoError if a process has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                lines = self._log(name).read_text(errors="replace").splitlines()[-15:]
                raise DemoError(
                    f"The {name} ended with exit code {process.returncode}. Its log, {self._log(name)}, ends:\n"
                    + "\n".join(lines)
                )

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

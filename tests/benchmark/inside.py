"""python -m tests.benchmark.inside MODULE:FUNCTION: call it with each line of stdin; print what it returns.

In a process with the settings of production, and in JSON. For each call the process forks: the fork has connected to
nothing yet, and has not been asked anything before.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import django

from tests.benchmark.database import ONBOARDING, BenchmarkError, production
from tests.servers import ROOT


class Inside:
    """A function, called in such a process. It ends with the `with`."""

    def __init__(self, url: str, function: str) -> None:
        self.function = function
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmark.inside", function],
            cwd=ROOT,
            env={**os.environ, **production(url, ONBOARDING), "PYTHONWARNINGS": "ignore"},  # no static files are there
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __call__(self, *arguments: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        if not (told := self._process.stdout.readline()):
            raise BenchmarkError(f"{self.function} failed at {arguments}.")
        return json.loads(told)

    def __enter__(self) -> Inside:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # and its forks
        self._process.communicate()


def main(function: str) -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    module, _, name = function.partition(":")
    call = getattr(importlib.import_module(module), name)
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            print(json.dumps(call(*json.loads(line))), flush=True)  # noqa: T201 (what the benchmark reads)
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

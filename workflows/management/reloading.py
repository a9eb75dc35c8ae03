"""`runworker --reload`: a new worker each time the code changes. For development only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from django.apps import apps
from django.conf import ENVIRONMENT_VARIABLE
from django.utils.autoreload import DJANGO_AUTORELOAD_ENV, StatReloader, get_child_arguments

from workflows.engine.supervisor import die_with


def is_worker() -> bool:
    """Whether `run` has started this process."""
    return DJANGO_AUTORELOAD_ENV in os.environ


def run(say: Callable[[str], object]) -> None:
    """Run this command in a process of its own, and again after each change, until Ctrl-C or SIGTERM.

    Django's own loop (`django.utils.autoreload.run_with_reloader`) would run it in a thread, but a worker forks and
    handles signals. A worker that cannot start, as after a typing mistake, says why; the next change starts another.
    """
    files = StatReloader()
    for folder in _folders():
        files.watch_dir(folder, "**/*.py")
    worker = partial(die_with, os.getpid())  # safe in a fork: this process has no threads
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with suppress(KeyboardInterrupt):
        while True:
            before = dict(files.snapshot_files())
            environment = {**os.environ, DJANGO_AUTORELOAD_ENV: "true"}
            process = subprocess.Popen(get_child_arguments(), env=environment, preexec_fn=worker)
            try:
                while not (changed := before.items() ^ dict(files.snapshot_files()).items()):
                    time.sleep(files.SLEEP_TIME)
                say(f"{min(changed)[0]} has changed: the worker finishes what it has in hand, and starts again.")
            finally:
                process.terminate()
                process.wait()


def _folders() -> Iterator[Path]:
    """The folders of the project's own code: a module there may be new, or may not be imported for a mistake in it."""
    project = find_spec(os.environ[ENVIRONMENT_VARIABLE])
    if project and project.origin:
        yield Path(project.origin).parent
    for path in (Path(each.path) for each in apps.get_app_configs()):
        if not path.is_relative_to(sysconfig.get_path("purelib")):
            yield path

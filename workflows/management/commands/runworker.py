"""`manage.py runworker`: the processes that carry out workflows."""

from __future__ import annotations

import logging
import os
import socket
from argparse import ArgumentParser, ArgumentTypeError
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from workflows import extension
from workflows.engine import healthfile, sessions
from workflows.engine.claim import COMPENSATION
from workflows.engine.healthfile import Report
from workflows.engine.supervisor import Options, Supervisor
from workflows.management import reloading
from workflows.management.arguments import seconds
from workflows.management.database import refuse_lacking_keys, refuse_unmigrated
from workflows.management.running import RunningCommand
from workflows.postgres import server_log

logger = logging.getLogger(__name__)


class Command(RunningCommand):
    drain = "Stop when nothing is due."
    help = (
        "Works through due workflows, one at a time in each process, until it is stopped.\n\n"
        "SIGTERM or Ctrl-C: it claims nothing more, and finishes the workflow in hand or, after --grace seconds,\n"
        "gives it back at its next step. To go faster start more processes, on any host: they share the queue."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--processes", type=_positive_int, default=1, help="How many processes (default: 1).")
        add("--queue", default="default", help="The queue whose workflows to take (default: default).")
        add("--only", choices=[COMPENSATION], default="", help="Take only workflows that are being undone.")
        add("--grace", type=seconds, default=30.0, metavar="SECONDS", help="For the workflow in hand (default: 30).")
        add("--reload", action="store_true", help="Start again when the code changes: for development, with DEBUG.")
        super().add_arguments(parser)
        kept = "Keep a file for `manage.py workerhealth` (default: WORKER_HEALTH_FILE of the environment, or none)."
        add("--health-file", default=settings.WORKER_HEALTH_FILE, metavar="PATH", help=kept)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["reload"] and not settings.DEBUG:
            raise CommandError("--reload is for development, with DEBUG. In production, deploy and restart the worker.")
        if options["reload"] and not reloading.is_worker():
            reloading.run(self.stderr.write)
            return
        _show_the_log()
        # Checks that only workers need are deployment checks, so that no other command runs them.
        self.check(tags=["workers"], include_deployment_checks=True)
        refuse_unmigrated()
        server_log.warn()
        refuse_lacking_keys()
        names = Options.__dataclass_fields__
        given = Options(**{name: value for name, value in options.items() if name in names})
        logger.info("working on the queue %s, processes: %s; Ctrl-C stops it", given.queue, given.processes)
        supervisor = Supervisor(given, extension.of_workers())
        try:
            sessions.refuse_unfit(f"{socket.gethostname()}:{os.getpid()}")
            with ExitStack() as stack:
                if options["health_file"]:
                    _keep_health_file(options["health_file"], stack)
                supervisor.run()
        except sessions.UnfitSessions as refused:
            raise CommandError(str(refused)) from None


def _show_the_log() -> None:
    """With DEBUG, write the log to stderr if no setting says where it goes: a new project would show nothing."""
    log = logging.getLogger("workflows")
    if settings.DEBUG and not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)


def _keep_health_file(health_file: str, stack: ExitStack) -> None:
    """Start the health file, and lock it until the stack is closed."""
    path = Path(health_file)
    try:
        stack.enter_context(healthfile.locked(path))
        healthfile.write(path, Report([], ""))
    except healthfile.InUse:
        raise CommandError(f"Another runworker keeps the health file {path}: give each of them its own.") from None
    except OSError as error:
        raise CommandError(f"The health file {path} cannot be written: {error.strerror}.") from None


def _positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of processes: give 1 or more")
    return int(text)

"""`manage.py workerhealth`: whether the workers of a `runworker` are well. It reads only the health file."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from workflows.engine import healthfile
from workflows.management.arguments import HelpInLines, seconds


class Command(HelpInLines):
    help = (
        "Says in one line whether the workers of a `runworker --health-file PATH` are well; ends with 0 or 1.\n\n"
        "They are well if their supervisor is alive and none of them has been without the database for too long.\n"
        "The command reads only the file, so it also answers while the database is away.\n\n"
        "As a liveness probe use --liveness: a restart of the workers does not bring the database back."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add, age, silence = parser.add_argument, healthfile.MAX_AGE, healthfile.MAX_SILENCE
        file = "The file of the workers (default: WORKER_HEALTH_FILE of the environment)."
        add("--health-file", default=settings.WORKER_HEALTH_FILE, metavar="PATH", help=file)
        old = f"How old the file may be (default: {age:.0f}); it is written every few seconds."
        add("--max-age", type=seconds, default=age, metavar="SECONDS", help=old)
        silent = f"How long a worker may be without the database (default: {silence:.0f})."
        add("--max-silence", type=seconds, default=silence, metavar="SECONDS", help=silent)
        add("--liveness", action="store_true", help="Check only whether the supervisor is alive.")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["health_file"]:
            raise CommandError("Name the file of `runworker --health-file`, or set WORKER_HEALTH_FILE for both.")
        path = Path(options["health_file"])
        max_silence = None if options["liveness"] else options["max_silence"]
        if fault := healthfile.failure_reason(path, max_age=options["max_age"], max_silence=max_silence):
            raise CommandError(f"The workers are not well: {fault}.")
        self.stdout.write("The workers are well.")

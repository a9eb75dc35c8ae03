"""The downstream sandbox, as a process (docs/sandbox.md)."""

from __future__ import annotations

import argparse
import errno
import signal
import sqlite3
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from onboarding.sandbox.server import Sandbox, SandboxServer, serve_until
from workflows.management.arguments import HelpInLines

A_YEAR = 366 * 86_400.0  # seconds

EXAMPLES = """\
Try it:
  curl localhost:8100/_healthz
  curl localhost:8100/_effects                     what was really performed (?service= &patient_uuid= &since=)
  curl localhost:8100/_calls                       how many calls each service got in each second (?service= &since=)
  curl localhost:8100/_faults -d '{"service": "payments", "operation": "charge", "kind": "timeout_after", "count": 1}'
  curl localhost:8100/_faults                      the faults in force, and how often each struck
  curl -X DELETE localhost:8100/_faults
  curl localhost:8100/_accounts -d '{"email": "ada@example.com", "session_token": "session_ada"}'

Started again on the same --state it has forgotten nothing but the counts of calls. docs/sandbox.md has the rest.
"""


class Command(HelpInLines):
    help = "Serve the eight services that onboarding calls, with state on disk and faults on request."
    examples = EXAMPLES
    requires_system_checks = ()  # needs neither database nor services

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=8100, help="8100 unless given; 0 takes a free one.")
        parser.add_argument("--host", default="127.0.0.1", help="The address to listen on; 127.0.0.1 unless given.")
        parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="Where it keeps what it knows.")
        parser.add_argument(
            "--key-ttl",
            type=_seconds,
            metavar="SECONDS",
            help="How long an idempotency key is remembered; for ever unless given.",
        )
        parser.add_argument(
            "--seed", type=int, help="Makes a fault with a rate below 1 strike the same requests again."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        server = self._bind(options["host"], options["port"], self._open(**options))
        self.stdout.write(
            f"Sandbox ready at http://{options['host']}:{server.server_port}, state in {options['state']}."
        )
        self.stdout.flush()
        serve_until(server, {signal.SIGTERM, signal.SIGINT})

    def _open(self, *, state: Path, seed: int | None, key_ttl: float | None, **_: Any) -> Sandbox:
        try:
            return Sandbox(state, seed, key_ttl=key_ttl)
        except (OSError, sqlite3.DatabaseError) as error:
            if "locked" in str(error):
                raise CommandError(
                    f"Another sandbox is running on {state}. Stop it, or give another --state."
                ) from None
            raise CommandError(f"Cannot keep state in {state}: {error}. Give another --state.") from None

    def _bind(self, host: str, port: int, sandbox: Sandbox) -> SandboxServer:
        try:
            return SandboxServer((host, port), sandbox)
        except (OSError, OverflowError) as error:
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            why = "the port is taken" if taken else str(error)
            raise CommandError(f"Cannot listen on {host}:{port}: {why}. Give another --port.") from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= A_YEAR:
        raise argparse.ArgumentTypeError("a number of seconds is needed, up to a year")
    return seconds

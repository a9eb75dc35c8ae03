"""python -m tests.benchmark.pickup: how soon an idle worker takes up what is submitted over HTTP."""

from __future__ import annotations

import argparse
import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import httpx
import psutil
from rich.console import Console
from rich.table import Table

from tests.benchmark.command import at_least, parser, run_to_the_end
from tests.benchmark.database import BenchmarkError, Database, manage, production, throwaway_database
from tests.benchmark.progress import Track, tracking
from tests.processes import Runworker
from tests.servers import Gunicorn

DESCRIPTION = """\
How soon does an idle worker take up a submission? Submissions are sent to the intake over HTTP,
one now and then, so that the workers have nothing to do in between. Measured is the time from
the storing of a submission to the opening of its attempt, by the database's clock; and, while
nothing is sent at all, the processor time of an idle worker and of its sessions.
"""

EPILOG = """\
examples:
  make bench-pickup
  make bench-pickup ARGS="--processes 50"
"""

# Seconds for the workers to start.
TO_START = 5.0


def main() -> int:
    arguments = parser("python -m tests.benchmark.pickup", description=DESCRIPTION, epilog=EPILOG)
    for name, default, what in (
        ("submissions", 300, "submissions"),
        ("processes", 2, "worker processes"),
        ("every", 200, "milliseconds between two submissions, in the mean"),
        ("rest", 20, "seconds in which the workers are watched while nothing is sent"),
    ):
        arguments.add_argument(
            f"--{name}", type=at_least(1), default=default, metavar="N", help=f"{what} (default: {default})"
        )
    chosen = arguments.parse_args()
    return run_to_the_end(lambda: run(chosen))


def run(arguments: argparse.Namespace) -> None:
    with TemporaryDirectory() as folder, tracking() as track, throwaway_database() as database, ExitStack() as stack:
        environment = {
            **production(database.url),
            "WORKFLOWS": "tests.benchmark.definitions.ENTERED",
            "SUBMISSION_WORKFLOW": "entered",
            "ALLOWED_HOSTS": "localhost",
        }
        log = Path(folder) / "worker.log"
        worker = Runworker(log, (), ("--processes", str(arguments.processes)), **environment)
        stack.callback(worker.kill)
        intake = stack.enter_context(
            Gunicorn("config.intake", Path(folder) / "intake.log", database.url, **environment)
        )
        time.sleep(TO_START)
        share = _share_at_rest(database, worker, arguments)
        _submit(database, intake.port, arguments, track)
        times = _times(database)
    table = Table(f"{arguments.submissions} submissions, idle workers: {arguments.processes}")
    table.add_column("ms", justify="right")
    for label, fraction in (("median", 0.5), ("99th percentile", 0.99), ("worst", 1.0)):
        table.add_row(label, f"{times[min(len(times) - 1, int(fraction * len(times)))]:.1f}")
    table.add_row("of a core for an idle worker", f"{share:.2%}")
    Console().print(table)


def _share_at_rest(database: Database, worker: Runworker, arguments: argparse.Namespace) -> float:
    """The share of a core that one worker and its sessions use while nothing is to be done."""

    def used() -> float:
        sessions: list[int] = database.ask(
            "SELECT array_agg(pid) FROM pg_stat_activity WHERE application_name LIKE 'onramp%%'"
        )
        found = [*map(psutil.Process, worker.children()), *map(psutil.Process, sessions or [])]
        return sum(sum(process.cpu_times()[:2]) for process in found)

    before, began = used(), time.monotonic()
    time.sleep(arguments.rest)
    return (used() - before) / (time.monotonic() - began) / arguments.processes


def _submit(database: Database, port: int, arguments: argparse.Namespace, track: Track) -> None:
    key = manage(database.url, "createapikey", "benchmark").split()[-1]
    advance = track("submitted", arguments.submissions)
    with httpx.Client(base_url=f"http://localhost:{port}", headers={"Authorization": f"Bearer {key}"}) as client:
        for number in range(arguments.submissions):
            answer = client.post("/v1/submissions", json={}, headers={"Idempotency-Key": str(uuid4())})
            if answer.status_code != 202:
                raise BenchmarkError(f"The intake answered {answer.status_code}: {answer.text[:300]}")
            advance(number + 1)
            time.sleep(arguments.every / 1000 * random.uniform(0.5, 1.5))


def _times(database: Database) -> list[float]:
    """Milliseconds, the shortest first."""
    time.sleep(1)
    found: list[float] = database.ask(
        """SELECT array_agg(ms ORDER BY ms) FROM (
               SELECT extract(epoch FROM a.opened_at - w.created_at)::float * 1000 AS ms
                 FROM workflows_workflow w JOIN workflows_attempt a ON a.workflow_id = w.id AND a.number = 1) taken"""
    )
    if not found:
        raise BenchmarkError("No worker has taken anything up.")
    return found


if __name__ == "__main__":
    sys.exit(main())

"""python -m tests.benchmark: measures, prints a table, and leaves nothing behind."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from tests.benchmark import STEPS, idle, takeover, throughput, waking
from tests.benchmark.command import at_least, parser, run_to_the_end
from tests.benchmark.database import throwaway_database
from tests.benchmark.progress import tracking
from tests.benchmark.throughput import Drain, Speed

DESCRIPTION = f"""\
How fast is the engine, how soon is a killed worker's row taken over, and a signal acted on?

Throughput: workflows of {STEPS} `once` steps that do nothing, so that what is measured is
the engine and its commits; and workflows of {STEPS} plain steps, of which nothing is
recorded. The bare loops make the same commits with psycopg alone, in as many processes
(and one of them a single commit); the engine is `manage.py runworker --drain` with the
settings of production. They take turns, and each round's ratio is of neighbours: compare
ratios, for the workflows a second are as much the machine's as ours.

Takeover: a worker that holds a row is killed with SIGKILL, over and over; the time is
that until another one holds the row.

Waking: while workers are busy with a backlog of fresh submissions, signals are sent to
workflows that wait; the time is that until a worker has taken the workflow up again.
The goal is a 99th percentile below {waking.GOAL:.0f} second.

Idle: what the looks and heartbeats of many workers that find nothing take of each second,
behind a queue that was drained and not vacuumed. One process does what they would do, one
after another by a clock of its own, so it needs no machine for as many processes.

All of it runs on a database of its own, on the server of DATABASE_URL or (with DEBUG=1)
the embedded one, and the database is dropped at the end.
"""

EPILOG = """\
examples:
  make bench                                       about two minutes
  make bench ARGS="--rounds 30 --kills 100"        less noise
  make bench ARGS="--kills 0 --signals 0 --idle 0" throughput alone
"""


def main() -> int:
    arguments = parse_arguments()
    return run_to_the_end(lambda: run(arguments))


def parse_arguments() -> argparse.Namespace:
    arguments = parser("python -m tests.benchmark", description=DESCRIPTION, epilog=EPILOG)
    for name, default, least, what in (
        ("workflows", 400, 1, "workflows in each round, of the bare loop and of the engine"),
        ("processes", 2, 1, "processes, of the bare loop and of the engine"),
        ("rounds", 7, 1, "rounds: short ones and many, for a machine has its moments"),
        ("kills", 20, 0, "workers to kill, of two processes or more"),
        ("signals", 200, 0, "signals to send"),
        ("backlog", 10_000, 1, "fresh submissions that are due all the while"),
        ("idle", 200, 0, "idle workers"),
        ("drained", 700_000, 1, "workflows drained before they look"),
    ):
        arguments.add_argument(
            f"--{name}", type=at_least(least), default=default, metavar="N", help=f"{what} (default: {default})"
        )
    return arguments.parse_args()


def run(arguments: argparse.Namespace) -> None:
    with TemporaryDirectory() as folder, tracking() as track, throwaway_database() as database:
        speeds = [
            throughput.measure(
                database,
                Path(folder),
                drain,
                # Plain steps are done ten times as fast.
                workflows=arguments.workflows * (1 if drain.workflow_type == "no_ops" else 10),
                processes=arguments.processes,
                rounds=arguments.rounds,
                track=track,
            )
            for drain in throughput.DRAINS
        ]
        seconds = takeover.measure(
            database, Path(folder), kills=arguments.kills, processes=max(2, arguments.processes), track=track
        )
        woken = waking.measure(
            database,
            Path(folder),
            signals=arguments.signals,
            backlog=arguments.backlog,
            processes=arguments.processes,
            track=track,
        )
        looks = idle.measure(database, workers=arguments.idle, drained=arguments.drained)
    console = Console()
    for drain, measured in zip(throughput.DRAINS, speeds, strict=True):
        console.print(f"\nworkflows of {STEPS} {drain.steps}, processes: {arguments.processes}")
        console.print(_throughput(drain, measured))
    if seconds:
        console.print(f"{arguments.kills} kills")
        console.print(_takeover(seconds))
    if woken:
        console.print(f"{arguments.signals} signals behind a backlog of {arguments.backlog:,}")
        console.print(waking.table(woken))
    if looks:
        console.print(f"{arguments.idle} idle workers, {arguments.drained:,} workflows drained and not vacuumed")
        console.print(idle.table(looks))


def _throughput(drain: Drain, speeds: Sequence[Speed]) -> Table:
    loops = [f"bare loop, {loop}" for loop in drain.goals]
    table = Table("workflows/s")
    for heading in (*loops, "engine", *(f"engine / {loop}" for loop in loops)):
        table.add_column(heading, justify="right")
    rounds = [(f"round {number}", speed) for number, speed in enumerate(speeds, 1)]
    for label, speed in [*rounds, ("median", throughput.medians(speeds))]:
        rates = [f"{rate:.0f}" for rate in (*speed.bare, speed.engine)]
        table.add_row(label, *rates, *(f"{ratio:.2f}" for ratio in speed.ratios))
    table.add_row("goal", *[""] * (len(loops) + 1), *(f"{goal:.2f}" for goal in drain.goals.values()))
    return table


def _takeover(seconds: Sequence[float]) -> Table:
    table = Table("SIGKILL to held again", "seconds")
    table.add_row("median", f"{median(seconds):.3f}")
    table.add_row("worst", f"{max(seconds):.3f}")
    return table


if __name__ == "__main__":
    sys.exit(main())

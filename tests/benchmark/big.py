"""python -m tests.benchmark.big: maintenance on a table of millions, and what the rest notices."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tests.benchmark import waking
from tests.benchmark.command import at_least, parser, run_to_the_end
from tests.benchmark.database import BenchmarkError, Database, production, throwaway_database
from tests.benchmark.progress import Track, tracking
from tests.servers import ROOT

SLICE_GOAL = 1.0

DESCRIPTION = f"""\
Does maintenance keep their bounds with millions of rows?

The table is filled with workflows that wait, a quarter of them for a signal of one and
the same linking id. Then, each time in slices, by one worker alone:

  a round    every maintenance task once, with nothing to do
  pass by    twenty signals for that linking id, which none of those who listen waits for
  wake       one signal for that linking id: until all who listen are due
  expire     a thirtieth of the rows is over its time at once: until all of them are due

and the same two once more while workers drain a backlog and signals are sent to others.
No slice is to take longer than {SLICE_GOAL:.0f} second, and no other signal is to be
acted on later than that.
"""

EPILOG = """\
examples:
  make bench-big                            3,000,000 rows: some minutes, and 4 GB of disk
  make bench-big ARGS="--rows 100000"       a minute
"""


class Done(NamedTuple):
    """What a maintenance task has done: how many rows, in how many seconds, and the seconds of its longest slice."""

    rows: int
    seconds: float
    longest: float


def main() -> int:
    arguments = parse_arguments()
    return run_to_the_end(lambda: run(arguments.rows))


def parse_arguments() -> argparse.Namespace:
    arguments = parser("python -m tests.benchmark.big", description=DESCRIPTION, epilog=EPILOG)
    arguments.add_argument(
        "--rows", type=at_least(1000), default=3_000_000, metavar="N", help="rows that wait (default: 3,000,000)"
    )
    return arguments.parse_args()


def run(rows: int) -> None:
    with TemporaryDirectory() as folder, tracking() as track, throwaway_database() as database:
        fill(database, rows, track)
        alone = {
            "a round": maintain(database),
            "pass by": pass_by(database),
            "wake": wake(database, "news:1"),
            "expire": expire(database, rows // 30),
        }
        picked_up = waking.measure(
            database,
            Path(folder),
            signals=200,
            backlog=10_000,
            processes=2,
            track=track,
            keep=True,
            meanwhile=lambda: (store_signal(database, "news:2"), make_expired(database, rows // 30)),
        )
    console = Console()
    console.print(f"\n{rows:,} workflows that wait, {rows // 4:,} of them for a signal of one linking id")
    table = Table("maintenance, one worker alone")
    for heading in ("rows", "seconds", "longest slice"):
        table.add_column(heading, justify="right")
    for name, task in alone.items():
        table.add_row(name, f"{task.rows:,}", f"{task.seconds:.2f}", f"{task.longest:.3f}")
    table.add_row("goal", "", "", f"{SLICE_GOAL:.3f}")
    console.print(table)
    console.print("Other signals, while workers wake and expire as many again")
    console.print(waking.table(picked_up))


def fill(database: Database, rows: int, track: Track) -> None:
    """A quarter listens by one linking id, and the rest by one each; in pieces, to see them come.

    In a queue of their own: how long the woken ones take is not what is measured.
    """
    advance, piece = track("filling", rows), 100_000
    for first in range(1, rows + 1, piece):
        last = min(first + piece - 1, rows)
        database.execute(
            """INSERT INTO workflows_workflow (
                      idempotency_key, workflow_type, queue, payload, linking_id, wake_on, waiting_for,
                      invisible_until, expires_at)
               SELECT gen_random_uuid(), 'no_ops', 'big', '{}', CASE WHEN n %% 4 = 0 THEN 'all' ELSE 'acc-' || n END,
                      ARRAY['news'], 'the signal news', now() + interval '1 day', now() + interval '2 days'
                 FROM generate_series(%s::int, %s::int) n""",
            *(first, last),
        )
        advance(last)
    database.analyze()


def store_signal(database: Database, key: str, name: str = "news") -> None:
    """A signal for a quarter of all, of a sender that dies before it wakes anybody."""
    database.execute(
        "INSERT INTO workflows_signal (source, dedupe_key, name, linking_id) VALUES ('benchmark', %s, %s, 'all')",
        *(key, name),
    )


def make_expired(database: Database, count: int) -> None:
    database.execute(
        """UPDATE workflows_workflow SET expires_at = now() WHERE id IN (
               SELECT id FROM workflows_workflow WHERE linking_id <> 'all' AND expires_at > now()
                ORDER BY id LIMIT %s)""",
        count,
    )


def maintain(database: Database) -> Done:
    """Do maintenance, in a process of its own, until no slice of any changes anything."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmark.maintenance"],
        cwd=ROOT,
        env={**os.environ, **production(database.url)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchmarkError(f"maintenance failed:\n{done.stderr}")
    return Done(*json.loads(done.stdout))


def pass_by(database: Database, signals: int = 20) -> Done:
    for number in range(signals):
        store_signal(database, f"other:{number}", "other")
    passed = maintain(database)
    database.execute("UPDATE workflows_signal SET closed_at = now()")
    return passed


def wake(database: Database, key: str) -> Done:
    store_signal(database, key)
    return maintain(database)


def expire(database: Database, count: int) -> Done:
    make_expired(database, count)
    return maintain(database)


if __name__ == "__main__":
    sys.exit(main())

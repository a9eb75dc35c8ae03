"""python -m tests.benchmark.big: maintenance on a table of millions, and what the rest notices."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from tests.benchmark import waking
from tests.benchmark.command import at_least, run_to_the_end
from tests.benchmark.database import Database, throwaway_database
from tests.benchmark.findings import Finding, grid, tables_of
from tests.benchmark.inside import Inside
from tests.benchmark.setting import Setting
from tests.commands import parser

SLICE_GOAL = 1.0

DESCRIPTION = f"""\
Does maintenance keep its bounds with millions of workflows that wait, a quarter of them for a
signal of one linking id? Each time in slices, by one worker alone:

  add up     what the rollup has not counted: all rows came, a third as many attempts of 21 steps ended
  a round    every maintenance task once, with nothing to do
  pass by    twenty signals for that linking id, which none of those who listen waits for
  wake       one signal for that linking id: until all who listen are due
  expire     a thirtieth of the rows is over its time at once: until all of them are due

and the last two once more while workers drain a backlog and signals are sent to others. No slice
is to take longer than {SLICE_GOAL:.0f} second, and no other signal is to be acted on later than that.
"""

# A quarter listens by one linking id, and the rest by one each. In a queue of their own: how long the woken ones take
# is not what is measured.
ROWS = """
    INSERT INTO workflows_workflow (
           idempotency_key, workflow_type, queue, payload, linking_id, wake_on, waiting_for,
           invisible_until, expires_at)
    SELECT gen_random_uuid(), 'no_ops', 'big', '{}', CASE WHEN n %% 4 = 0 THEN 'all' ELSE 'acc-' || n END,
           ARRAY['news'], 'the signal news', now() + interval '1 day', now() + interval '2 days'
      FROM generate_series(%(first)s, %(last)s) n"""

# As workers close them: twenty to a transaction. A slice ends with one.
ATTEMPTS = f"""
    DO $$ BEGIN
        FOR piece IN 1..%(rows)s BY 20 LOOP
            INSERT INTO workflows_attempt (workflow_id, number, worker, opened_at, closed_at, closed_xid, outcome,
                                           steps_in_short)
            SELECT n, 1, 'host:1', now() - interval '1 day' * n / %(rows)s, now() - interval '1 day' * n / %(rows)s,
                   pg_current_xact_id(), 'waiting', '{", ".join(f"step_{n} {n}.5" for n in range(1, 22))}'
              FROM generate_series(piece, piece + 19) n;
            COMMIT;
        END LOOP;
    END $$"""


def main() -> int:
    arguments = parser("tests.benchmark.big", DESCRIPTION, 'make bench-big ARGS="--rows 100000"    in a minute')
    told = "rows that wait (default: 3,000,000: some minutes, and 4 GB of disk)"
    arguments.add_argument("--rows", type=at_least(1000), default=3_000_000, metavar="N", help=told)
    rows = arguments.parse_args().rows
    return run_to_the_end(lambda: run(rows))


def run(rows: int) -> None:
    sizes = argparse.Namespace(signals=200, backlog=10_000, processes=2)
    with TemporaryDirectory() as folder, throwaway_database() as database:
        database.fill("workflows that wait", rows, ROWS)
        database.execute(ATTEMPTS % {"rows": rows // 3})
        database.analyze()
        with Inside(database.url, "tests.benchmark.worker:maintain") as maintain:
            done = _alone(database, rows, maintain)

        def meanwhile() -> None:
            _store_signal(database, "news:2")
            _make_expired(database, rows // 30)

        others = waking.measure(Setting(database, Path(folder), sizes), meanwhile)
    console = Console()
    console.print(f"\n{rows:,} workflows that wait, {rows // 4:,} of them for a signal of one linking id")
    console.print(grid("maintenance, one worker alone", done.items()))
    longest = max(each["longest slice"] for each in done.values())
    found = [Finding("maintenance", "the longest slice", [longest], "s", at_most=SLICE_GOAL), *waking.findings(others)]
    console.print(*tables_of(found))
    console.print("The signals were sent to others, while workers woke and expired as many again.")


def _alone(database: Database, rows: int, maintain: Callable[[], Any]) -> dict[str, dict[str, float]]:
    done = {"add up": maintain(), "a round": maintain()}
    for number in range(20):
        _store_signal(database, f"other:{number}", "other")
    done["pass by"] = maintain()
    database.execute("UPDATE workflows_signal SET closed_at = now()")
    _store_signal(database, "news:1")
    done["wake"] = maintain()
    _make_expired(database, rows // 30)
    return {**done, "expire": maintain()}


def _store_signal(database: Database, key: str, name: str = "news") -> None:
    """A signal for a quarter of all, of a sender that dies before it wakes anybody."""
    database.execute(
        "INSERT INTO workflows_signal (source, dedupe_key, name, linking_id) VALUES ('benchmark', %s, %s, 'all')",
        *(key, name),
    )


def _make_expired(database: Database, count: int) -> None:
    database.execute(
        """UPDATE workflows_workflow SET expires_at = now() WHERE id IN (
               SELECT id FROM workflows_workflow WHERE linking_id <> 'all' AND expires_at > now()
                ORDER BY id LIMIT %s)""",
        count,
    )


if __name__ == "__main__":
    sys.exit(main())

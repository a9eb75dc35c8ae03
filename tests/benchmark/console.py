"""python -m tests.benchmark.console: how long each page of the console takes on a table of a million full rows."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import Any

from rich.console import Console

from tests.benchmark.command import at_least, run_to_the_end
from tests.benchmark.database import kept_database, throwaway_database
from tests.benchmark.findings import grid, track
from tests.benchmark.full_rows import fill
from tests.benchmark.inside import Inside
from tests.benchmark.pages import USERS, pages
from tests.commands import parser
from tests.postgres import embedded_server

WARM_GOAL, COLD_GOAL, LOOK_GOAL = 0.2, 1.0, 0.01

DESCRIPTION = f"""\
Does each page of the console keep its bounds on big tables? It is asked for through all of Django,
in a process of its own with the settings of production, by a superuser and by support:

  cold          the first request of the process; before it PostgreSQL is restarted, so that
                its buffers are empty (those of the operating system are not)
  warm          the median of five requests after that
  CPU           the processor time of a warm request, in Django and in its session on the server
  statements    of one request
  buffers       pages of 8 kB that the worst of them reads, whether they are in memory or not

The goals are {WARM_GOAL * 1000:.0f} ms warm and {COLD_GOAL:.0f} s cold, and of processor {LOOK_GOAL * 1000:.0f} ms for
a look that has seen all.
The database is dropped at the end.
"""

EXAMPLES = (
    "make bench-console                                     1,000,000 rows: half an hour, and 8 GB of disk",
    'make bench-console ARGS="--rows 50000 --warm"          some minutes',
    'make bench-console ARGS="--keep big --pages inbox"     fills the database `big` if it is empty, and keeps it',
)


def main() -> int:
    arguments = parse_arguments()
    return run_to_the_end(lambda: run(arguments))


def parse_arguments() -> argparse.Namespace:
    arguments = parser("tests.benchmark.console", DESCRIPTION, *EXAMPLES)
    add = arguments.add_argument
    add("--rows", type=at_least(2000), default=1_000_000, metavar="N", help="full rows (default: 1,000,000)")
    add("--bare", type=at_least(0), default=0, metavar="N", help="and rows with nothing else, the newest (default: 0)")
    add("--pages", default="", metavar="REGEX", help="measure only the pages of such a name")
    add("--keep", default="", metavar="NAME", help="fill the database NAME if it is empty, and keep it")
    add("--warm", action="store_true", help="do not restart PostgreSQL")
    add("--statements", action="store_true", help="print the worst statement of each slow page")
    return arguments.parse_args()


def run(arguments: argparse.Namespace) -> None:
    server = None if arguments.warm else embedded_server()
    measured = {}
    with kept_database(arguments.keep) if arguments.keep else throwaway_database() as database:
        if not database.ask("SELECT EXISTS (SELECT FROM workflows_workflow)"):
            fill(database, arguments.rows, arguments.bare)
            with Inside(database.url, "tests.benchmark.asking:prepare") as prepare:
                prepare()
        rows = int(database.ask("SELECT reltuples FROM pg_class WHERE relname = 'workflows_workflow'"))
        chosen = [page for page in pages(database) if re.search(arguments.pages, page.name)]
        with Inside(database.url, "tests.benchmark.asking:ask") as ask:
            for page in track(chosen, "pages"):
                if server:
                    server.restart()
                measured[page.name] = ask(page.path, page.data, page.look)
    console = Console(width=120)
    console.print(f"\n{rows:,} workflows; the load of the machine at the end was {os.getloadavg()[0]:.1f}")
    console.print("cold: PostgreSQL restarted before" if server else "cold: without a restart of PostgreSQL")
    console.print(grid("page", ((name, _cells(found)) for name, found in measured.items())))
    for name, found in measured.items() if arguments.statements else ():
        if _is_slow(found):
            console.print(f"\n{name}: {found[USERS[0]].get('worst', '')}", markup=False, highlight=False)


def _is_slow(found: dict[str, Any]) -> bool:
    """By either goal, for either user. A page that only one of them may see is judged by that one."""
    shown = [of for of in found.values() if "warm" in of]
    return not shown or found[USERS[0]].get("cold", 0) > COLD_GOAL or max(of["warm"] for of in shown) > WARM_GOAL


def _cells(found: dict[str, Any]) -> dict[str, str]:
    first, second = (found[user] for user in USERS)
    return {
        "cold ms": _time(first, "cold", COLD_GOAL),
        "warm ms": _time(first, "warm", WARM_GOAL),
        "support": _time(second, "warm", WARM_GOAL),
        "CPU ms": _time(first, "processor", LOOK_GOAL if first.get("status") == 204 else WARM_GOAL),
        "statements": str(first.get("statements", "")),
        "buffers": f"{first.get('buffers', 0):,}",
    }


def _time(found: dict[str, Any], kind: str, goal: float) -> str:
    """In milliseconds, and marked when it is over the goal; of what was refused the status."""
    if kind not in found:
        return f"({found['status']})"
    seconds = found[kind]
    return f"[bold red]{seconds * 1000:.0f} ![/]" if seconds > goal else f"{seconds * 1000:.0f}"


if __name__ == "__main__":
    sys.exit(main())

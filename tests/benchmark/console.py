"""python -m tests.benchmark.console: how long each page of the console takes on a table of a million full rows."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console
from rich.table import Table

from config.embedded.server import Server
from tests.benchmark.command import at_least, parser, run_to_the_end
from tests.benchmark.database import BenchmarkError, Database, kept_database, production, throwaway_database
from tests.benchmark.full_rows import fill
from tests.benchmark.pages import USERS, Page, pages
from tests.benchmark.progress import Track, tracking
from tests.postgres import embedded_server
from tests.servers import ROOT

WARM_GOAL, COLD_GOAL = 0.2, 1.0

DESCRIPTION = f"""\
Does each page of the console keep its bounds on big tables?

The tables are filled with full rows: workflows in every state, with payloads, attempts, events,
effects, waits, tasks, search keys and deferred steps. Then each page is asked for through all of
Django, in a process of its own with the settings of production:

  cold          the first request of the process; before it PostgreSQL is restarted, so that
                its buffers are empty (those of the operating system are not)
  warm          the median of five requests after that; by a superuser, and by support
  CPU           the processor time of a warm request, in Django and in its session on the server,
                which other work on the machine disturbs less
  statements    of one request
  buffers       pages of 8 kB that the worst of them reads, whether they are in memory or not

The goals are {WARM_GOAL * 1000:.0f} ms warm and {COLD_GOAL:.0f} s cold. The database is one of its own,
which is dropped at the end, unless it is to be kept.
"""

EPILOG = """\
examples:
  make bench-console                                     1,000,000 rows: half an hour, and 8 GB of disk
  make bench-console ARGS="--rows 50000 --warm"          some minutes
  make bench-console ARGS="--keep big --pages inbox"     fills the database `big` if it is empty, and keeps it
"""


def main() -> int:
    arguments = parse_arguments()
    return run_to_the_end(lambda: run(arguments))


def parse_arguments() -> argparse.Namespace:
    arguments = parser("python -m tests.benchmark.console", description=DESCRIPTION, epilog=EPILOG)
    arguments.add_argument(
        "--rows", type=at_least(2000), default=1_000_000, metavar="N", help="full rows (default: 1,000,000)"
    )
    arguments.add_argument(
        "--bare", type=at_least(0), default=0, metavar="N", help="and rows with nothing else, the newest (default: 0)"
    )
    arguments.add_argument("--pages", default="", metavar="REGEX", help="measure only the pages of such a name")
    arguments.add_argument(
        "--keep", default="", metavar="NAME", help="fill the database NAME if it is empty, and keep it"
    )
    arguments.add_argument("--warm", action="store_true", help="do not restart PostgreSQL")
    arguments.add_argument("--statements", action="store_true", help="print the worst statement of each slow page")
    return arguments.parse_args()


def run(arguments: argparse.Namespace) -> None:
    server = None if arguments.warm else embedded_server()
    with tracking() as track, _database(arguments.keep) as database:
        if not database.ask("SELECT EXISTS (SELECT FROM workflows_workflow)"):
            fill(database, arguments.rows, arguments.bare, track)
            if _asking(database.url, "--prepare").wait():
                raise BenchmarkError("The search keys could not be stored.")
        rows = int(database.ask("SELECT reltuples FROM pg_class WHERE relname = 'workflows_workflow'"))
        chosen = [page for page in pages(database) if re.search(arguments.pages, page.name)]
        measured = list(_measure(database.url, chosen, server, track))
    console = Console(width=120)
    console.print(f"\n{rows:,} workflows; the load of the machine at the end was {os.getloadavg()[0]:.1f}")
    console.print("cold: PostgreSQL restarted before" if server else "cold: without a restart of PostgreSQL")
    console.print(_table(measured))
    if arguments.statements:
        for page, found in measured:
            if _is_slow(found):
                console.print(f"\n{page.name}: {found[USERS[0]]['worst']}", markup=False, highlight=False)


def _database(name: str) -> AbstractContextManager[Database]:
    return kept_database(name) if name else throwaway_database()


def _measure(
    url: str, chosen: list[Page], server: Server | None, track: Track
) -> Iterator[tuple[Page, dict[str, Any]]]:
    advance = track("pages", len(chosen))
    with _asking(url) as process:
        for number, page in enumerate(chosen, 1):
            if server:
                server.restart()
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps({"path": page.path, "data": page.data}) + "\n")
            process.stdin.flush()
            if not (answer := process.stdout.readline()):
                raise BenchmarkError(f"{page.path} could not be asked for.")
            yield page, json.loads(answer)
            advance(number)


def _asking(url: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.benchmark.asking", *arguments],
        cwd=ROOT,
        env={**os.environ, **_environment(url)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _environment(url: str) -> dict[str, str]:
    known = (
        "onboarding.workflow.ONBOARDING",
        *(f"tests.benchmark.definitions.{n}" for n in ("NO_OPS", "HELD", "ENTERED")),
    )
    return {
        **production(url),
        "WORKFLOWS": ",".join(known),
        "SEARCH_KEYS": "k" * 43,
        "ALLOWED_HOSTS": "testserver",
        "LOG_LEVEL": "CRITICAL",  # support is refused some pages
        "PYTHONWARNINGS": "ignore",  # of static files, which are not collected
    }


def _is_slow(found: dict[str, Any]) -> bool:
    """By either goal, for either user. A page that only one of them may see is judged by that one."""
    shown = [of for of in found.values() if "warm" in of]
    return not shown or found[USERS[0]].get("cold", 0) > COLD_GOAL or max(of["warm"] for of in shown) > WARM_GOAL


def _table(measured: list[tuple[Page, dict[str, Any]]]) -> Table:
    table = Table("page")
    for heading in ("cold ms", "warm ms", "support", "CPU ms", "statements", "buffers"):
        table.add_column(heading, justify="right")
    for page, found in measured:
        first = found[USERS[0]]
        table.add_row(
            page.name,
            *(
                _time(found[user], kind, goal)
                for user, kind, goal in (
                    (USERS[0], "cold", COLD_GOAL),
                    (USERS[0], "warm", WARM_GOAL),
                    (USERS[1], "warm", WARM_GOAL),
                )
            ),
            f"{first.get('processor', 0) * 1000:.0f}",
            str(first.get("statements", "")),
            f"{first.get('buffers', 0):,}",
        )
    return table


def _time(found: dict[str, Any], kind: str, goal: float) -> str:
    """In milliseconds, and marked when it is over the goal; of what was refused the status."""
    if kind not in found:
        return f"({found['status']})"
    seconds = found[kind]
    return f"[bold red]{seconds * 1000:.0f} ![/]" if seconds > goal else f"{seconds * 1000:.0f}"


if __name__ == "__main__":
    sys.exit(main())

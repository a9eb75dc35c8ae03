"""python -m tests.benchmark.spike: submissions a second over HTTP, beside the least that a Django view can do."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from math import isnan, nan
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tests.benchmark.clients import Round, send
from tests.benchmark.command import at_least, parser, run_to_the_end
from tests.benchmark.database import BenchmarkError, Database, manage, production, throwaway_database
from tests.benchmark.processor import seconds_used
from tests.benchmark.progress import Track, tracking
from tests.servers import Gunicorn

DESCRIPTION = """\
How many submissions a second do two processes take, and how long does each answer take? Three are
measured in turns, on one database: a Django view that parses the body and inserts a row; our
Django view, with the whole contract (API key, limits, duplicates, search keys, time limits); and
the intake, with the same contract. A ratio is of neighbours in a round, to the first. Beside it
stands the processor time of a submission, in the processes and in their sessions on the server,
which other work on the machine disturbs less. The database is one of its own, which is dropped at
the end. The machine's cores run all of it: the
database, the intake and the clients.
"""

EPILOG = """\
examples:
  make bench-spike
  make bench-spike ARGS="--connections 64 --seconds 5 --rounds 9"
  make bench-spike ARGS="--idle 100 --trickling 100"
"""

ENTRIES = {
    "one INSERT": "tests.benchmark.views:one_insert",
    "Django view": "tests.benchmark.views:django_view",
    "intake": "config.intake",
}
FLOOR = "one INSERT"
# Connections: the ratio to the floor, and milliseconds of the 99th percentile.
GOALS = {16: (2.0, 15), 64: (3.0, 90), 256: (3.0, 300)}


class Measured(NamedTuple):
    connections: int
    rounds: Sequence[Mapping[str, Round]]

    def row(self, name: str) -> tuple[float, ...]:
        """Submissions a second, the ratio to the floor, its least and most; percentiles and processor time in ms."""
        ratios = [each[name].rate / each[FLOOR].rate if each[FLOOR].latencies else nan for each in self.rounds]
        rounds = [each[name] for each in self.rounds]
        return (
            median(each.rate for each in rounds),
            *(median(ratios), min(ratios), max(ratios)),
            *(median(each.percentile(percent) for each in rounds) * 1000 for percent in (50, 99)),
            median(each.cost for each in rounds) * 1000,
        )


def main() -> int:
    arguments = parse_arguments()
    return run_to_the_end(lambda: run(arguments))


def parse_arguments() -> argparse.Namespace:
    arguments = parser("python -m tests.benchmark.spike", description=DESCRIPTION, epilog=EPILOG)
    for name, default, least, what in (
        ("seconds", 3, 1, "seconds that each of the three is measured in a round"),
        ("rounds", 5, 1, "rounds"),
        ("processes", 2, 1, "processes of each of the three"),
        ("idle", 0, 0, "clients beside that are connected and send nothing"),
        ("trickling", 0, 0, "clients beside that send two bytes a second"),
    ):
        arguments.add_argument(
            f"--{name}", type=at_least(least), default=default, metavar="N", help=f"{what} (default: {default})"
        )
    arguments.add_argument(
        "--connections",
        type=at_least(1),
        nargs="+",
        default=list(GOALS),
        metavar="N",
        help=f"connections that send at a time (default: {' '.join(map(str, GOALS))})",
    )
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the figures of all rounds there, too")
    return arguments.parse_args()


def run(arguments: argparse.Namespace) -> None:
    with TemporaryDirectory() as folder, tracking() as track, throwaway_database() as database, ExitStack() as stack:
        key = manage(database.url, "createapikey", "benchmark").split()[-1]
        servers = {
            name: stack.enter_context(_serve(entry, database.url, Path(folder), arguments.processes))
            for name, entry in ENTRIES.items()
        }
        for server in servers.values():  # the first requests of a process import and connect
            send(server.port, key, seconds=1, connections=16)
        database.begin_anew()
        measured = [
            Measured(count, list(_rounds(database, servers, key, count, arguments, track)))
            for count in arguments.connections
        ]
    console = Console()
    beside = f", beside {arguments.idle} idle and {arguments.trickling} trickling clients"
    for each in measured:
        title = f"{each.connections} connections{beside if arguments.idle or arguments.trickling else ''}"
        console.print(f"\n{title}")
        console.print(_table(each))
    if arguments.json:
        arguments.json.write_text(json.dumps([_figures(each) for each in measured], indent=1))


def _serve(entry: str, url: str, folder: Path, processes: int) -> Gunicorn:
    environment = {
        **production(url),
        "WORKFLOWS": "tests.benchmark.definitions.ENTERED_WITH_KEYS",
        "SUBMISSION_WORKFLOW": "entered_with_keys",
        "SEARCH_KEYS": "k" * 43,
        "ALLOWED_HOSTS": "localhost",
        "WEB_CONCURRENCY": str(processes),
        "CONNECTIONS_PER_ADDRESS": "0",  # all clients have one
    }
    return Gunicorn(entry, folder / f"{entry.rpartition('.')[2]}.log", url, **environment)


def _rounds(
    database: Database,
    servers: Mapping[str, Gunicorn],
    key: str,
    connections: int,
    arguments: argparse.Namespace,
    track: Track,
) -> Iterator[Mapping[str, Round]]:
    """One round after the other. Each of the three is the first, the second and the last in turn."""
    advance = track(f"{connections} connections", arguments.rounds)
    names = list(servers)
    for number in range(arguments.rounds):
        found = {}
        for name in names[number % 3 :] + names[: number % 3]:
            before = database.ask("SELECT count(*) FROM workflows_workflow")
            used = seconds_used(database, servers[name])
            found[name] = send(
                servers[name].port,
                key,
                seconds=arguments.seconds,
                connections=connections,
                idle=arguments.idle,
                trickling=arguments.trickling,
            )
            found[name].processor = seconds_used(database, servers[name]) - used
            stored = database.ask("SELECT count(*) FROM workflows_workflow") - before
            if stored < len(found[name].latencies):
                raise BenchmarkError(f"{name} answered {len(found[name].latencies)} and stored {stored}.")
        database.begin_anew()
        advance(number + 1)
        yield found


def _table(measured: Measured) -> Table:
    table = Table("")
    for heading in ("submissions/s", "ratio", "least", "most", "p50 ms", "p99 ms", "CPU ms"):
        table.add_column(heading, justify="right")
    for name in ENTRIES:
        rate, *ratios, p50, p99, cost = measured.row(name)
        table.add_row(
            name,
            f"{rate:,.0f}",
            *("" if isnan(each) else f"{each:.2f}" for each in ratios),
            f"{p50:.1f}",
            f"{p99:.1f}",
            f"{cost:.2f}",
        )
    if measured.connections in GOALS:
        ratio, p99 = GOALS[measured.connections]
        table.add_row("goal of the intake", "", f"{ratio:.2f}", "", "", "", f"{p99:.1f}", "")
    return table


def _figures(measured: Measured) -> dict[str, object]:
    names = ("rate", "ratio", "least_ratio", "most_ratio", "p50_ms", "p99_ms", "processor_ms")
    return {
        "connections": measured.connections,
        "entries": {name: dict(zip(names, map(_known, measured.row(name)), strict=True)) for name in ENTRIES},
    }


def _known(figure: float) -> float | None:
    return None if isnan(figure) else figure


if __name__ == "__main__":
    sys.exit(main())

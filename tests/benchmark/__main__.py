"""python -m tests.benchmark: measures, prints a table of each and one of all targets, and leaves nothing behind."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from tests.benchmark import (
    calls,
    claim,
    drain,
    flood,
    footprint,
    idle,
    intake,
    machine,
    memory,
    pickup,
    purging,
    takeover,
    waking,
)
from tests.benchmark.command import at_least, run_to_the_end
from tests.benchmark.database import BenchmarkError, throwaway_database
from tests.benchmark.findings import Report, counts, summary, with_targets
from tests.benchmark.peers import PEERS
from tests.benchmark.peers.contest import PeerError, contestants
from tests.benchmark.peers.venv import versions
from tests.benchmark.setting import Setting, add_sizes, chosen_sizes
from tests.commands import parser

MEASURES = {
    "intake": intake,
    "flood": flood,
    "drain": drain,
    "pickup": pickup,
    "claim": claim,
    "calls": calls,
    "purge": purging,
    "idle": idle,
    "takeover": takeover,
    "waking": waking,
    "memory": memory,
    "bytes": footprint,
}

DESCRIPTION = f"""\
How fast is it, beside the least that the same work costs? Each measure runs real
processes with the settings of production, on a database of its own, on the server of
DATABASE_URL or (with DEBUG=1) the embedded one. The database is dropped at the end.

measures:
{"".join(f"  {name:10} {str(each.__doc__).splitlines()[0]}{chr(10)}" for name, each in MEASURES.items())}
What is compared takes turns in each round, and a ratio is of neighbours in time: compare
ratios, for the rates are as much the machine's as ours. Beside each median stands the
spread of the rounds: where a target lies within it, the noise has decided. The exit code
is 0 whatever the figures are.
"""

EXAMPLES = (
    'make bench ARGS="--json figures.json"                     all of it',
    "make bench-quick                                          the same with small sizes",
    'make bench ARGS="--only drain --rounds 30"                one measure, with less noise',
    'make bench ARGS="--only intake --connections 64 --seconds 5"',
)

OURS = (
    "ours: a transaction around the work, whose end decides; each attempt, its steps and its end are kept; a killed "
    "worker's row is held again at once; of a recorded step an INTENT is on disk before its call"
)

# Where nobody looks on: in a file, or in a log.
WIDTH = 140
QUICK_CONNECTIONS = [64]
MEASURES_WITH_PEERS = {"intake", "drain", "pickup"}


def main() -> int:
    arguments = parse_arguments()
    return run_to_the_end(lambda: run(arguments))


def parse_arguments() -> argparse.Namespace:
    arguments = parser("tests.benchmark", DESCRIPTION, *EXAMPLES)
    for option, known, told in (
        ("--only", MEASURES, "these measures, with commas between"),
        ("--peers", PEERS, f"these peers, with commas between, of {', '.join(PEERS)}; `none` for none"),
    ):
        arguments.add_argument(option, type=_choice(known), default=list(known), metavar="NAMES", help=told)
    arguments.add_argument("--quick", action="store_true", help="small sizes: some two minutes, and more noise")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write all figures of all rounds there, too")
    arguments.add_argument(
        "--connections",
        type=at_least(1),
        nargs="+",
        metavar="N",
        help=f"of the intake's clients (default: {[*intake.GOALS]}; --quick: {QUICK_CONNECTIONS})",
    )
    add_sizes(arguments)
    return arguments.parse_args()


def _choice(known: Iterable[str]) -> Callable[[str], list[str]]:
    """The type of an argument with names of these."""

    def names(text: str) -> list[str]:
        chosen = [] if text == "none" else text.split(",")
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no {name!r}: choose of {', '.join(known)}")
        return [name for name in known if name in chosen]

    return names


def run(arguments: argparse.Namespace) -> None:
    console, began = Console(width=None if sys.stdout.isatty() else WIDTH), datetime.now(UTC)
    connections = arguments.connections or (QUICK_CONNECTIONS if arguments.quick else [*intake.GOALS])
    sizes = argparse.Namespace(**chosen_sizes(arguments), connections=connections)
    peers = arguments.peers if MEASURES_WITH_PEERS.intersection(arguments.only) else []
    with (
        TemporaryDirectory() as folder,
        throwaway_database() as database,
        contestants(peers, Path(folder)) as (there, missing),
    ):
        about = {**machine.described(database), "peers": versions()}
        setting = Setting(database, Path(folder), sizes, there, missing)
        reports, failed = measure_all(arguments.only, setting, console)
    about["load_after"] = machine.load()
    targets, notes = with_targets(reports.values()), notes_on_peers(setting)
    console.print()
    _list(notes, console)
    if targets:
        console.print(summary(targets))
        console.print(counts(targets))
    console.print(
        f"{about['cores']} cores that ran the database and the clients, too; PostgreSQL {about['postgresql']}; "
        f"the load was {about['load_before']} before and {about['load_after']} after."
    )
    if arguments.json:
        told = {
            "began": began.isoformat(timespec="seconds"),
            "machine": about,
            "sizes": {**vars(sizes), "quick": arguments.quick},
            "measures": {name: report.as_json() for name, report in reports.items()},
            "targets": [finding.as_json() for finding in targets],
            "notes_on_peers": notes,
            "failed": failed,
        }
        arguments.json.write_text(json.dumps(told, indent=1) + "\n")
    if failed:
        raise BenchmarkError("\n".join(f"{name} failed: {why}" for name, why in failed.items()))


def measure_all(names: Sequence[str], setting: Setting, console: Console) -> tuple[dict[str, Report], dict[str, str]]:
    """One after the other, and each is shown as soon as it is there. One that fails takes no other along."""
    reports, failed = {}, {}
    for name in names:
        try:
            report = reports[name] = _report(name, setting, console)
        except (BenchmarkError, AssertionError) as error:
            failed[name] = str(error)
            console.print(f"\n{name} failed: {error}", markup=False, highlight=False)
            continue
        console.print(f"\n[bold]{name}[/]: {report.title}", *report.tables(), sep="\n", highlight=False)
        _list(report.notes, console)
    return reports, failed


def _report(name: str, setting: Setting, console: Console) -> Report:
    """One measure. If a peer breaks in its midst, it is measured once more, without that peer."""
    while True:
        try:
            report: Report = MEASURES[name].report(setting)
            return report
        except PeerError as error:
            console.print(f"\n{name}, once more without a peer. {error}", markup=False, highlight=False)
            setting.leave_out(error.peer, error.why)


def _list(notes: Sequence[str], console: Console) -> None:
    for note in notes:
        console.print(f"- {note}", markup=False, highlight=False)


def notes_on_peers(setting: Setting) -> list[str]:
    if not setting.peers and not setting.missing:
        return []
    return [
        OURS,
        *(f"{each.name}: {each.peer.does} ({each.peer.docs})" for each in setting.peers),
        *(f"{name} is left out: {why} ({PEERS[name].docs})" for name, why in setting.missing.items()),
    ]


if __name__ == "__main__":
    sys.exit(main())

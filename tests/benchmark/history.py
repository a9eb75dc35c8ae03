"""python -m tests.benchmark.history FROM TO: what the commits between them have added to the counts.

Counts are the same on every machine: function calls (cProfile's total) of a claim and of a submission, what the server
answers for them, and the indexes of the workflow's table that have an entry for a new row. It counts at so many
commits, and then halves the span in which one count has grown most, until that is one commit, or the time is over. A
commit at which this environment's packages do not work is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from tests.benchmark.command import at_least, run_to_the_end
from tests.benchmark.database import production
from tests.servers import ROOT, empty_database

COUNTED = Path(__file__).with_name("counted.py")
SECONDS = 300

Counts = dict[str, int]


def main() -> int:
    arguments = argparse.ArgumentParser(
        prog="tests.benchmark.history", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("first", metavar="FROM")
    arguments.add_argument("last", metavar="TO")
    arguments.add_argument("--points", type=at_least(2), default=8, help="commits to begin with (default: 8)")
    arguments.add_argument("--minutes", type=at_least(1), default=30, help="to halve spans for (default: 30)")
    arguments.add_argument("--of", default="one", help="the count by which spans are halved (default: one)")
    chosen = arguments.parse_args()
    until = monotonic() + 60 * chosen.minutes
    return run_to_the_end(lambda: walk(chosen.first, chosen.last, chosen.points, chosen.of, until))


def walk(first: str, last: str, points: int, of: str, until: float) -> None:
    commits = _git("rev-list", "--reverse", "--first-parent", f"{first}..{last}").split()
    commits.insert(0, _git("rev-parse", first).strip())
    known: dict[int, Counts] = {}
    for place in {round(each * (len(commits) - 1) / (points - 1)) for each in range(points)}:
        _count(commits, place, known)
    while (span := _steepest(known, of)) and monotonic() < until:
        _count(commits, sum(span) // 2, known)
    before: Counts = {}
    for place, counts in sorted(known.items()):
        if counts:
            told = ", ".join(f"{what} {count} ({count - before.get(what, count):+d})" for what, count in counts.items())
            print(f"{_git('log', '-1', '--format=%h %s', commits[place]).strip()}\n    {told}")  # noqa: T201
            before = counts


def _steepest(known: dict[int, Counts], of: str) -> tuple[int, int] | None:
    """The neighbours, with commits between them, between which this count has grown most."""
    places = sorted(place for place, counts in known.items() if counts)
    spans = [(a, b) for a, b in pairwise(places) if set(known).isdisjoint({(a + b) // 2})]
    growth = {span: known[span[1]][of] - known[span[0]][of] for span in spans}
    steepest = max(growth, key=growth.__getitem__, default=None)
    return steepest if steepest and growth[steepest] > 0 else None


def _count(commits: list[str], place: int, known: dict[int, Counts]) -> None:
    """Count at a commit, in a tree and a database of its own; nothing where that fails."""
    with TemporaryDirectory() as folder, empty_database(f"onramp_history_{os.getpid()}") as url:
        tree = f"{folder}/tree"
        _git("worktree", "add", "--quiet", "--detach", tree, commits[place])
        try:
            environment = {**os.environ, **production(url), "PYTHONWARNINGS": "ignore"}
            environment |= {"PYTHONPATH": f"{tree}:{COUNTED.parent}", "SUBMISSION_WORKFLOW": "entered"}
            environment["WORKFLOWS"] = ",".join(f"counted.{name}" for name in ("ONE", "PLAIN", "RECORDED", "ENTERED"))
            known[place] = {}
            for command in (["manage.py", "migrate", "--verbosity", "0"], [str(COUNTED)]):
                done = subprocess.run(
                    [sys.executable, *command],
                    cwd=tree,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=SECONDS,
                    check=False,
                )
                if done.returncode:
                    print(commits[place][:8], *done.stderr.splitlines()[-1:], file=sys.stderr)  # noqa: T201
                    return
            known[place] = json.loads(done.stdout.splitlines()[-1])
            print(commits[place][:8], known[place], file=sys.stderr)  # noqa: T201 (how far it has come)
        finally:
            _git("worktree", "remove", "--force", tree)


def _git(*arguments: str) -> Any:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())

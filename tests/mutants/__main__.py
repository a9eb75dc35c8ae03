"""python -m tests.mutants: applies each mutant to a copy of the tree, and fails when no test sees it."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from config.embedded.errors import EmbeddedServerError
from tests.benchmark.progress import Track, tracking
from tests.commands import complain, exit_in_order
from tests.mutants.mutant import Mutant
from tests.mutants.named import NamedMutantError, read
from tests.mutants.tree import FAILED, PASSED, Run, Tree, TreeError, copied

ROOT = Path(__file__).resolve().parents[2]

# Seconds. The slowest of the tests that are named take a fifth of that.
PATIENCE = 150
# All named tests together, each of them once.
PATIENCE_UNCHANGED = 1800

DESCRIPTION = """\
Would the tests see it, if that condition were not there?

A mutant is one small change that takes something away: a fence, a lock, an order, a
condition of a WHERE. The list (tests/mutants/named.txt) says of
each what is taken away, and which tests should see that.

All of it happens in a copy of the tree, with a PostgreSQL of its own; the checkout is
never changed. First the named tests run on the copy as it is, and must pass. Then each
mutant in turn is put into the copy, and its tests run until the first one fails: the
mutant is killed. A mutant under which the tests do not come to an end hangs, and counts
as killed. A mutant under which all its tests pass has survived: there is a condition
that no test would miss.

The exit code is 0 when every mutant was killed, and 1 otherwise.
"""

EPILOG = """\
examples:
  make mutants                                     all of them
  make mutants ARGS="--list"                       what there is, without running anything
  make mutants ARGS="--only fence"                 those with "fence" in their name, file or tests
  make mutants ARGS="--only waits/ --exitfirst"    of some files, to the first that survives

A new condition: add to the list a mutant that takes it out, and name the test that you
have written for it. `make test` checks that the list fits the sources.
"""


class Verdict(NamedTuple):
    """What became of a mutant. `told` is the first test that failed, or what happened instead."""

    mutant: Mutant
    killed: bool
    told: str
    seconds: float


def main() -> int:
    arguments = parse_arguments()
    try:
        chosen = [mutant for mutant in read(ROOT) if _is_meant(mutant, arguments.only)]
    except NamedMutantError as error:
        return complain(str(error))
    console = Console(width=None if sys.stdout.isatty() else 240)
    if not chosen:
        return complain(f"No mutant has {arguments.only.pattern!r} in its name, its file or its tests.")
    if arguments.list:
        console.print(_listed(chosen))
        return 0
    signal.signal(signal.SIGTERM, exit_in_order)
    try:
        verdicts = run(chosen, timeout=arguments.timeout, exit_first=arguments.exitfirst)
    except KeyboardInterrupt:
        return complain("Interrupted. The copy is removed.", 130)
    except (TreeError, EmbeddedServerError) as error:
        return complain(str(error))
    console.print(_table(verdicts))
    survived = [verdict for verdict in verdicts if not verdict.killed]
    console.print(f"{len(verdicts)} mutants, {len(verdicts) - len(survived)} killed, {len(survived)} survived")
    return 1 if survived else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        type=_pattern,
        metavar="PATTERN",
        help="run those whose name, file or tests match this (case is ignored)",
    )
    parser.add_argument("--list", action="store_true", help="print the list, and run nothing")
    parser.add_argument("-x", "--exitfirst", action="store_true", help="stop at the first that survives (else: go on)")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=PATIENCE,
        metavar="S",
        help=f"seconds that the tests of one mutant may take (default: {PATIENCE})",
    )
    return parser.parse_args()


def run(mutants: Sequence[Mutant], *, timeout: float, exit_first: bool = False) -> list[Verdict]:
    """Judge each mutant in a copy of the checkout. Raises TreeError when its tests fail without any mutant."""
    with tracking() as track, copied(ROOT) as tree:
        return judge_all(mutants, tree, timeout=timeout, exit_first=exit_first, track=track)


def judge_all(
    mutants: Sequence[Mutant], tree: Tree, *, timeout: float, exit_first: bool, track: Track
) -> list[Verdict]:
    advance = track("unchanged", 1)
    _require_passing(tree, list(dict.fromkeys(test for mutant in mutants for test in mutant.tests)))
    advance(1)
    verdicts: list[Verdict] = []
    advance = track("mutants", len(mutants))
    for mutant in mutants:
        verdicts.append(judge(mutant, tree, timeout=timeout))
        advance(len(verdicts))
        if not verdicts[-1].killed:
            print(f"SURVIVED: {mutant.name} ({mutant.file})", file=sys.stderr)
            if exit_first:
                break
    return verdicts


def judge(mutant: Mutant, tree: Tree, *, timeout: float) -> Verdict:
    """Run the mutant's tests with it. Raises TreeError when they could not run: then it shows nothing."""
    with tree.mutated(mutant):
        done = tree.run(mutant.tests, timeout=timeout)
    if done.code is None:
        told = f"{done.first_failure} (then it hangs)" if done.first_failure else "hangs"
        return Verdict(mutant, True, told, done.seconds)
    if done.code not in (PASSED, FAILED):
        raise TreeError(f"With the mutant {mutant.name!r} the tests do not even run:\n{_end_of(done)}")
    return Verdict(mutant, done.code == FAILED, done.first_failure or "SURVIVED", done.seconds)


def _require_passing(tree: Tree, tests: list[str]) -> None:
    done = tree.run(tests, timeout=PATIENCE_UNCHANGED)
    if done.code != PASSED:
        why = f"{done.first_failure} fails" if done.first_failure else "the tests do not run, or not to their end"
        raise TreeError(f"Without any mutant, {why}:\n{_end_of(done)}")


def _end_of(done: Run) -> str:
    return done.output[-3000:]


def _is_meant(mutant: Mutant, pattern: re.Pattern[str] | None) -> bool:
    return pattern is None or any(pattern.search(text) for text in (mutant.name, mutant.file, *mutant.tests))


def _listed(mutants: Sequence[Mutant]) -> Table:
    table = Table("mutant", "file", Column("tests that should see it", overflow="fold"))
    for mutant in mutants:
        table.add_row(mutant.name, mutant.file, escape("\n".join(mutant.tests)))
    return table


def _table(verdicts: Sequence[Verdict]) -> Table:
    table = Table("mutant", "file", Column("killed by", overflow="fold"), Column("seconds", justify="right"))
    for mutant, killed, told, seconds in verdicts:
        table.add_row(mutant.name, mutant.file, escape(told), f"{seconds:.1f}", style=None if killed else "bold red")
    return table


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} will not do: {error}") from None


def _seconds(text: str) -> float:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} will not do: give a whole number, 1 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())

"""python -m tests.mutants: applies each mutant to a copy of the tree, and fails when no test sees it."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from config.embedded.errors import EmbeddedServerError
from tests.benchmark.progress import tracking
from tests.commands import complain, exit_in_order
from tests.mutants.conditions import Map, all_mutants, changed_since
from tests.mutants.mutant import Mutant
from tests.mutants.named import NamedMutantError, read
from tests.mutants.tree import FAILED, PASSED, Run, Tree, TreeError, copied

ROOT = Path(__file__).resolve().parents[2]

# Seconds. The slowest of the tests that are named take a fifth of that.
PATIENCE = 150
# Of a condition: those that look at little else come first.
MOST_TESTS = 200
# All named tests together, each of them once.
PATIENCE_UNCHANGED = 1800

DESCRIPTION = """\
Would the tests see it, if that condition were not there?

A mutant is one small change that takes something away. Those with a name
(tests/mutants/named.txt) take away a fence, a lock, an order, a part of an SQL statement;
the list says which tests should see that. The others are of the conditions of workflows/,
as the syntax tree has them: always true, always false, without one part of an `and` or
`or`, a comparison turned. Their tests are those that run the line: which these are is
found out by one run of `make test` under coverage, and kept in var/ until a file changes.

All of it happens in a copy of the tree, with a PostgreSQL of its own; the checkout is
never changed. Each mutant in turn is put into the copy, and its tests run until the first
one fails: the mutant is killed. A mutant under which the tests do not come to an end
hangs, and counts as killed. A mutant under which all its tests pass has survived: there is
a condition that no test would miss. One that no test reaches in its own process (a worker
that a test starts is another) is not tried, and is told apart.

The exit code is 0 when no mutant has survived, and 1 otherwise.
"""

EPILOG = """\
examples:
  make mutants                                     those with a name, all of them (an hour)
  make mutants ARGS="--changed"                    the conditions of the lines that differ from main
  make mutants ARGS="--changed HEAD~3"             ... that differ from a commit
  make mutants ARGS="--seed 7 --count 40"          40 conditions at random; the same ones for the same seed
  make mutants ARGS="--only fence --list"          what there is of a name, file or test, without running it
  make mutants ARGS="--only waits/ --exitfirst"    of some files, to the first that survives
"""


class Verdict(NamedTuple):
    """What became of a mutant: `seconds` of its tests, None for one that was not tried. `told` is the first test that
    failed, or what happened instead."""

    mutant: Mutant
    killed: bool
    told: str
    seconds: float | None = None


def main() -> int:
    arguments = parse_arguments()
    console = Console(width=None if sys.stdout.isatty() else 240)
    try:
        chosen = [mutant for mutant in _chosen(arguments) if _is_meant(mutant, arguments.only)]
        if not chosen:
            return complain("There is no such mutant.")
        if arguments.list:
            console.print(_listed(chosen))
            return 0
        signal.signal(signal.SIGTERM, exit_in_order)
        verdicts = run(chosen, arguments)
    except KeyboardInterrupt:
        return complain("Interrupted. The copy is removed.", 130)
    except (NamedMutantError, TreeError, EmbeddedServerError) as error:
        return complain(str(error))
    console.print(_table(verdicts))
    survived = [verdict for verdict in verdicts if not verdict.killed and verdict.seconds is not None]
    killed = sum(verdict.killed for verdict in verdicts)
    untried = len(chosen) - killed - len(survived)
    console.print(f"{len(chosen)} mutants: {killed} killed, {len(survived)} survived, {untried} not tried")
    return 1 if survived else 0


def _chosen(arguments: argparse.Namespace) -> list[Mutant]:
    if arguments.changed is not None:
        is_changed = changed_since(arguments.changed, ROOT)
        return [mutant for mutant in all_mutants(ROOT) if is_changed(mutant)]
    if arguments.seed is not None:
        found = all_mutants(ROOT)
        return Random(arguments.seed).sample(found, min(arguments.count, len(found)))
    return read(ROOT)


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
    parser.add_argument(
        "--seed", type=_whole, metavar="N", help="conditions at random, the same ones for the same seed"
    )
    parser.add_argument("--count", type=_whole, default=40, metavar="N", help="how many at random (default: 40)")
    parser.add_argument(
        "--changed", nargs="?", const="main", metavar="BASE", help="conditions of lines that differ from BASE (main)"
    )
    parser.add_argument(
        "--minutes", type=_whole, default=20, metavar="N", help="begin no other condition after so long (default: 20)"
    )
    parser.add_argument("--list", action="store_true", help="print the list, and run nothing")
    parser.add_argument("-x", "--exitfirst", action="store_true", help="stop at the first that survives (else: go on)")
    parser.add_argument(
        "--timeout",
        type=_whole,
        default=PATIENCE,
        metavar="S",
        help=f"seconds that the tests of one mutant may take (default: {PATIENCE})",
    )
    return parser.parse_args()


def run(mutants: Sequence[Mutant], arguments: argparse.Namespace) -> list[Verdict]:
    """Judge each mutant in a copy of the checkout. Raises TreeError when the tests fail without any mutant."""
    with tracking() as track, copied(ROOT) as tree:
        advance = track("unchanged", 1)
        give_up_at = inf
        if mutants[0].tests:
            _require_passing(tree, list(dict.fromkeys(test for mutant in mutants for test in mutant.tests)))
        else:
            mutants = _with_tests(mutants, tree)
            give_up_at = monotonic() + 60 * arguments.minutes
        advance(1)
        advance = track("mutants", len(mutants))
        verdicts: list[Verdict] = []
        for mutant in mutants:
            if monotonic() > give_up_at:
                break
            verdicts.append(judge(mutant, tree, timeout=arguments.timeout))
            advance(len(verdicts))
            if not verdicts[-1].killed and mutant.tests:
                print(f"SURVIVED: {mutant.name} ({mutant.file})", file=sys.stderr)
                if arguments.exitfirst:
                    break
    return verdicts


def _with_tests(mutants: Sequence[Mutant], tree: Tree) -> list[Mutant]:
    known = Map(ROOT)
    if not known.is_made:
        known.make(tree)
    return [replace(mutant, tests=known.tests_of(mutant)) for mutant in mutants]


def judge(mutant: Mutant, tree: Tree, *, timeout: float) -> Verdict:
    """Run the mutant's tests with it. Raises TreeError when they could not run: then it shows nothing."""
    if not mutant.tests:
        return Verdict(mutant, False, "no test reaches it in its own process")
    with tree.mutated(mutant):
        done = tree.run(["-m", "", *mutant.tests[:MOST_TESTS]], timeout=timeout)
    if done.code is None:
        told = f"{done.first_failure} (then it hangs)" if done.first_failure else "hangs"
        return Verdict(mutant, True, told, done.seconds)
    if done.code not in (PASSED, FAILED):
        raise TreeError(f"With the mutant {mutant.name!r} the tests do not even run:\n{_end_of(done)}")
    return Verdict(mutant, done.code == FAILED, done.first_failure or "SURVIVED", done.seconds)


def _require_passing(tree: Tree, tests: list[str]) -> None:
    done = tree.run(["-m", "", *tests], timeout=PATIENCE_UNCHANGED)
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
        table.add_row(
            mutant.name,
            mutant.file,
            escape(told),
            f"{seconds or 0:.1f}",
            style="bold red" if seconds and not killed else None,
        )
    return table


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} will not do: {error}") from None


def _whole(text: str) -> float:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} will not do: give a whole number, 1 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())

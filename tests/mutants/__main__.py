"""python -m tests.mutants: applies each mutant to a copy of the tree, and fails when no test sees it."""

from __future__ import annotations

import argparse
import math
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from config.embedded.errors import EmbeddedServerError
from tests.commands import complain, exit_in_order, parser
from tests.mutants.conditions import all_mutants, changed_lines
from tests.mutants.named import NamedMutantError, read
from tests.mutants.reach import Reach
from tests.mutants.tree import PASSED, Mutant, Tree, TreeError, copied

ROOT = Path(__file__).resolve().parents[2]

# Seconds for the tests of one mutant, and for all those that are named, each of them once.
PATIENCE = 150
PATIENCE_UNCHANGED = 1800

KILLED, SURVIVED, UNDECIDED, NOT_REACHED, NOT_TRIED = "killed", "survived", "undecided", "not-reached", "not-tried"

DESCRIPTION = """\
Would the tests see it, if that condition were not there? A mutant takes one away:

  named   A fence, a lock, an order, a condition of a WHERE, of tests/mutants/named.txt,
          which says what is taken away, and which tests see that.
  random  A condition in the Python of workflows/: always true, always false, without one
          side of its `and` or `or`, without its `not`, or with < for <= or == for !=.
          Their tests are those of `make test` that run the line. var/mutants-map.json
          knows these; to make it takes twice as long as `make test`.

A copy of the tree is changed; it has a PostgreSQL of its own. The tests run until one fails:

  killed       One has failed. (A named mutant is also killed when its tests hang.)
  survived     All have passed: no test misses the condition. Write that test, or delete
               the condition. (Some mutants are the same program in other words.)
  not-reached  No test runs the line in its own process; those that start processes may.
  undecided    The tests took longer than --timeout.
  not-tried    The --minutes were over.

The exit code is 1 when a mutant has survived, and 0 otherwise.
"""

EXAMPLES = (
    "make mutants                                all named ones (an hour)",
    'make mutants ARGS="--only fence"            those with "fence" in their name, file or tests',
    'make mutants ARGS="--changed"               the conditions in the lines that main does not have',
    'make mutants ARGS="--changed HEAD~3 --list" what there would be, without running anything',
    'make mutants ARGS="--seed 7 --count 40"     40 random ones; with the same seed the same ones',
)


class Verdict(NamedTuple):
    mutant: Mutant
    outcome: str
    told: str = ""
    seconds: float = 0


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, exit_in_order)
    verdicts = []
    try:
        mutants = choose(arguments)
        if arguments.list or not mutants:
            print("\n".join(map(str, mutants)) or "There is no such mutant.")
            return 0
        for verdict in judge_all(mutants, arguments):
            verdicts.append(verdict)
            told = f"{verdict.outcome:11} {verdict.seconds:5.1f} s  {verdict.mutant}  {verdict.told}"
            print(f"{len(verdicts):4}/{len(mutants)}  {told}", flush=True)
    except KeyboardInterrupt:
        return complain("Interrupted. The copy is removed.", 130)
    except (NamedMutantError, TreeError, EmbeddedServerError) as error:
        return complain(str(error))
    counts = Counter(verdict.outcome for verdict in verdicts)
    for mutant in [verdict.mutant for verdict in verdicts if verdict.outcome == SURVIVED]:
        line = (ROOT / mutant.file).read_text().splitlines()[mutant.lines[0] - 1]
        print(f"\nSURVIVED: {mutant}\n{line}")
    print(f"\n{len(verdicts)} mutants:", ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts[SURVIVED] else 0


def parse_arguments() -> argparse.Namespace:
    options = parser("tests.mutants", DESCRIPTION, *EXAMPLES)
    add = options.add_argument
    add("--seed", type=int, metavar="N", help="random ones by this seed (default: a new one, which is printed)")
    add("--count", type=int, metavar="N", help="so many random ones (default: 40, with --changed all)")
    add("--changed", nargs="?", const="", metavar="BASE", help="in lines that BASE does not have (default: main)")
    add("--only", type=_pattern, metavar="PATTERN", help="those whose file:line, name or tests match")
    add("--list", action="store_true", help="print them, and run nothing")
    add("--map", action="store_true", help="make the map of random ones again")
    add("--minutes", type=int, default=20, metavar="N", help="for random ones, at most (default: 20)")
    add("--timeout", type=int, default=PATIENCE, metavar="S", help=f"seconds for a mutant (default: {PATIENCE})")
    arguments = options.parse_args()
    asked = (arguments.seed, arguments.count, arguments.changed)
    arguments.random = arguments.map or any(given is not None for given in asked)
    return arguments


def choose(arguments: argparse.Namespace) -> list[Mutant]:
    """The mutants that are meant. Random ones have no tests yet."""
    mutants = all_mutants(ROOT) if arguments.random else read(ROOT)
    if arguments.changed is not None:
        changed = changed_lines(ROOT, arguments.changed)
        mutants = [mutant for mutant in mutants if not changed.get(mutant.file, set()).isdisjoint(mutant.lines)]
    if arguments.only:
        mutants = [mutant for mutant in mutants if arguments.only.search("\n".join([str(mutant), *mutant.tests]))]
    count = arguments.count or (40 if arguments.random and arguments.changed is None else len(mutants))
    if count < len(mutants):
        seed = random.randrange(1000) if arguments.seed is None else arguments.seed
        print(f"{count} of {len(mutants)} mutants, with --seed {seed}")
        mutants = random.Random(seed).sample(mutants, count)
    return mutants


def judge_all(mutants: Sequence[Mutant], arguments: argparse.Namespace, root: Path = ROOT) -> Iterator[Verdict]:
    """Judge each in a copy of the tree. Raises TreeError when the tests of the list fail without any mutant."""
    with copied(root) as tree:
        until = math.inf
        if arguments.random:
            reach = Reach(root / "var" / "mutants-map.json", tree)
            if failed := reach.update(anew=arguments.map):
                print("These tests fail without any mutant, and are left out:", *failed, sep="\n  ")
            mutants = [reach.with_tests(mutant) for mutant in mutants]
            until = monotonic() + 60 * arguments.minutes
        else:
            _require_passing(tree, sorted({test for mutant in mutants for test in mutant.tests}))
        for mutant in mutants:
            verdict = judge(mutant, tree, min(arguments.timeout, until - monotonic()))
            hangs = verdict.outcome == UNDECIDED and not arguments.random  # its tests, few, come to an end without it
            yield verdict._replace(outcome=KILLED, told="hangs") if hangs else verdict


def judge(mutant: Mutant, tree: Tree, timeout: float) -> Verdict:
    """Run the tests of the mutant with it, whatever their markers."""
    if not mutant.tests:
        return Verdict(mutant, NOT_REACHED)
    if timeout <= 0:
        return Verdict(mutant, NOT_TRIED)
    with tree.mutated(mutant):
        done = tree.run(["-x", "-m", "", *mutant.tests], timeout=timeout)
    if done.failed:
        return Verdict(mutant, KILLED, done.failed[0], done.seconds)
    return Verdict(mutant, SURVIVED if done.code == PASSED else UNDECIDED, f"{len(mutant.tests)} tests", done.seconds)


def _require_passing(tree: Tree, tests: Sequence[str]) -> None:
    done = tree.run(["-x", "-m", "", *tests], timeout=PATIENCE_UNCHANGED)
    if done.code != PASSED:
        why = f"{done.failed[0]} fails" if done.failed else "the tests do not run, or not to their end"
        raise TreeError(f"Without any mutant, {why}:\n{done.output[-3000:]}")


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} will not do: {error}") from None


if __name__ == "__main__":
    sys.exit(main())

"""A mutant: one small change that takes something away, and the tests that should see it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old` becomes `new` in `file`; `why` says what is taken away by that.

    `old` must be found once, or `nth` says which of them is meant, counted from 1. `tests` are pytest's node ids.
    """

    why: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    nth: int = 0

    def position_in(self, source: str) -> int:
        """Where `old` begins. Raises MutantError when it is not there, or several times with no `nth` given."""
        starts = [found.start() for found in re.finditer(re.escape(self.old), source)]
        if not starts:
            raise MutantError(f"{self.why!r}: {self.file} does not have {self.old!r}. What has become of it?")
        if not self.nth and len(starts) > 1:
            raise MutantError(
                f"{self.why!r}: {self.file} has {self.old!r} {len(starts)} times. Say more of it, or nth."
            )
        if self.nth > len(starts):
            raise MutantError(f"{self.why!r}: {self.file} has {self.old!r} {len(starts)} times, and no {self.nth}th.")
        return starts[max(self.nth, 1) - 1]

    def applied_to(self, source: str) -> str:
        """The file with the mutant in it. Raises MutantError when that is no Python, or the same as before."""
        start = self.position_in(source)
        mutated = source[:start] + self.new + source[start + len(self.old) :]
        if mutated == source:
            raise MutantError(f"{self.why!r} changes nothing in {self.file}.")
        try:
            compile(mutated, self.file, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise MutantError(
                f"{self.why!r} makes no Python of {self.file}: {error.msg}, line {error.lineno}."
            ) from None
        return mutated


class MutantError(Exception):
    """The list does not fit the sources (any more); the message says where."""


def faults_of(mutants: list[Mutant], root: Path) -> list[str]:
    """What is wrong with the list, in sentences: a text or a test that is not there, a name that is used twice."""
    faults = []
    names: set[str] = set()
    for mutant in mutants:
        if mutant.why in names:
            faults.append(f"Two mutants are called {mutant.why!r}.")
        names.add(mutant.why)
        try:
            mutant.applied_to((root / mutant.file).read_text())
        except (MutantError, FileNotFoundError) as error:
            faults.append(str(error))
        if not mutant.tests:
            faults.append(f"{mutant.why!r} names no test that should see it.")
        faults += [f"{mutant.why!r}: there is no test {test}." for test in mutant.tests if not _exists(test, root)]
    return faults


def _exists(test: str, root: Path) -> bool:
    """Whether a node id names a file, or a function at the top of it."""
    file, _, function = test.partition("::")
    path = root / file
    return path.is_file() and (not function or function.partition("[")[0] in _functions_of(path))


@cache
def _functions_of(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}

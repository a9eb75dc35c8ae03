"""The named mutants, of `named.txt`: what each replaces is found in the sources, and its tests among the tests."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import takewhile
from pathlib import Path

from tests.mutants.tree import Mutant

LIST = Path(__file__).with_name("named.txt")
FENCE = "{FENCE}"


class NamedMutantError(Exception):
    """The list does not fit the sources (any more); the message says where."""


def read(root: Path, text: str | None = None) -> list[Mutant]:
    """The mutants of the list. Raises NamedMutantError with all that is wrong with it, a line each."""
    files = _tests_by_name(root)
    mutants, faults, file = [], [], ""
    for block in re.findall(r"^\S.*(?:\n +.*)*", text or LIST.read_text(), re.MULTILINE):
        name, *lines = block.splitlines()
        if name.startswith("== "):
            file = name[3:]
        elif not name.startswith("#"):
            told: dict[str, list[str]] = defaultdict(list)
            for line in lines:
                told[line.strip()[:1]].append(line.strip()[1:].strip())
            try:
                mutants.append(_located(name, file, told, files, root))
            except (NamedMutantError, OSError, SyntaxError) as error:
                faults.append(f"{name!r}: {error}")
    names = [mutant.name for mutant in mutants]
    faults += [f"Two mutants are called {name!r}." for name in {*names} if names.count(name) > 1]
    if faults:
        raise NamedMutantError("\n".join(["The list of mutants does not fit the sources:", *faults]))
    return mutants


def _located(name: str, file: str, told: dict[str, list[str]], files: dict[str, list[str]], root: Path) -> Mutant:
    [old] = told["-"] or told["~"]
    new = "".join(told["+"]) if told["-"] else old.replace(FENCE, f"({FENCE} OR true)")
    head = _common(old, new)
    tail = _common(old[len(head) :][::-1], new[len(head) :][::-1])[::-1]
    between = old[len(head) : len(old) - len(tail)]
    source = (root / file).read_text()
    found = list(re.finditer(f"{_spaced(head)}({_spaced(between)}){_spaced(tail)}", source))
    if len(found) != 1:
        raise NamedMutantError(f"{file} has {old!r} {len(found)} times, and not once.")
    if missing := [test for test in told[">"] if not files[test.partition("[")[0]]] or not told[">"]:
        raise NamedMutantError(f"there is no test {missing}.")
    tests = tuple(f"{path}::{test}" for test in told[">"] for path in files[test.partition("[")[0]])
    start, end = found[0].span(1)
    lines = range(source.count("\n", 0, start) + 1, source.count("\n", 0, end) + 2)
    mutant = Mutant(name, file, lines, start, end, new[len(head) : len(new) - len(tail)], tests)
    if mutant.applied_to(source) == source:
        raise NamedMutantError("it changes nothing.")
    return mutant


def _common(one: str, other: str) -> str:
    """What both start with."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return "".join(letter for letter, _ in same)


def _spaced(text: str) -> str:
    return re.sub(r"(\\?\s)+", r"\\s+", re.escape(text))


def _tests_by_name(root: Path) -> dict[str, list[str]]:
    """The files that have a test of that name."""
    files = defaultdict(list)
    for path in sorted((root / "tests").rglob("test_*.py")):
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE):
            files[name].append(str(path.relative_to(root)))
    return files

"""How a line of the list becomes a mutant."""

from __future__ import annotations

from collections.abc import Iterator

from tests.mutants.mutant import Mutant

# why, old text, new text, and the tests: from the folder tests/ on.
Line = tuple[str, ...]


def in_(file: str, *lines: Line) -> Iterator[Mutant]:
    """The mutants of a file of the engine: from the folder workflows/ on."""
    for why, old, new, *tests in lines:
        yield Mutant(why, f"workflows/{file}", old, new, tuple(f"tests/{test}" for test in tests))


def unfenced(why: str, old: str, *tests: str) -> Line:
    """The statement without its fence; `old` has it, and enough around it to be found."""
    return why, old, old.replace("{FENCE}", "({FENCE} OR true)"), *tests

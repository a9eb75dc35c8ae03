"""A mutant: one small change that takes something away, and the tests that should see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """`new` stands in `file` from `start` to `end`; `name` says what is taken away by that.

    `tests` are pytest's node ids; none of them reaches it when there are none.
    """

    name: str
    file: str
    start: int
    end: int
    new: str
    tests: tuple[str, ...]

    def applied_to(self, source: str) -> str:
        """The file with the mutant in it. Raises SyntaxError when that is no Python."""
        mutated = source[: self.start] + self.new + source[self.end :]
        compile(mutated, self.file, "exec", dont_inherit=True)
        return mutated

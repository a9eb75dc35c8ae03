"""Which tests reach a line: a map that is kept in var/, for all the tests are too slow for each mutant."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

from coverage import CoverageData

from tests.mutants.conditions import SOURCES
from tests.mutants.tree import FAILED, PASSED, Mutant, Tree, TreeError

PATIENCE = 3600  # seconds, on a busy machine


class Reach:
    """The map. Of the files of tests that have changed since it was made, or are new, the tests run again; of the
    sources that have changed, the lines are followed to where they stand now."""

    def __init__(self, kept: Path, tree: Tree) -> None:
        self._kept = kept
        self._tree = tree
        self._texts: dict[str, str] = {}
        self.reached: dict[str, dict[str, list[int]]] = {}  # by test, by file, the lines
        if kept.exists():
            self._texts, self.reached = json.loads(kept.read_text())

    def with_tests(self, mutant: Mutant) -> Mutant:
        """The mutant with the tests that run a line of it; first those that run few lines."""
        lines, reached = set(mutant.lines), self.reached
        found = [test for test, files in reached.items() if not lines.isdisjoint(files.get(mutant.file, ()))]
        found.sort(key=lambda test: sum(map(len, reached[test].values())))
        return replace(mutant, tests=tuple(found))

    def update(self, *, anew: bool = False) -> list[str]:
        """Bring it up to date, and keep it. Returns the tests that failed: they tell nothing, and are left out."""
        if anew:
            self._texts = {}
        root = self._tree.root
        paths = [*(root / SOURCES).rglob("*.py"), *(root / "tests").rglob("test_*.py")]
        texts = {str(path.relative_to(root)): path.read_text() for path in paths}
        changed = {file for file in {*texts, *self._texts} if texts.get(file) != self._texts.get(file)}
        moved = {file: _moved(self._texts[file], texts.get(file, "")) for file in changed & {*self._texts}}
        self.reached = {
            test: {
                file: sorted({now for line in lines for now in moved[file][line]}) if file in moved else lines
                for file, lines in files.items()
            }
            for test, files in self.reached.items()
            if test.partition("::")[0] not in changed
        }
        failed: list[str] = []
        if stale := sorted(file for file in changed & {*texts} if not file.startswith(SOURCES)):
            failed = self._measure(stale)
        self._texts = texts
        self._kept.parent.mkdir(exist_ok=True)
        self._kept.write_text(json.dumps([self._texts, self.reached]))
        return failed

    def _measure(self, files: list[str]) -> list[str]:
        options = ["-n", "2", f"--cov={SOURCES}", "--cov-context=test", "--cov-report="]
        done = self._tree.run(options + files, timeout=PATIENCE)
        if done.code not in (PASSED, FAILED):
            raise TreeError(f"The tests could not be measured:\n{done.output[-3000:]}")
        data = CoverageData(str(self._tree.root / ".coverage"))
        data.read()
        failed = {test.partition("[")[0] for test in done.failed}
        for path in data.measured_files():
            file = str(Path(path).relative_to(self._tree.root.resolve()))
            for line, contexts in data.contexts_by_lineno(path).items():
                for test in {context.partition("|")[0].partition("[")[0] for context in contexts} - failed - {""}:
                    self.reached.setdefault(test, {}).setdefault(file, []).append(line)
        return sorted(failed)


def _moved(old: str, new: str) -> dict[int, set[int]]:
    """Of each line, where it is now. What came between two lines counts as reached by what reaches these."""
    moved: dict[int, set[int]] = defaultdict(set)
    matcher = SequenceMatcher(None, old.split("\n"), new.split("\n"), autojunk=False)
    for kind, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        for line in range(old_start, old_end) or (old_start - 1, old_start):
            place = line + new_start - old_start
            moved[line + 1].update([place + 1] if kind == "equal" else range(new_start + 1, new_end + 1))
    return moved

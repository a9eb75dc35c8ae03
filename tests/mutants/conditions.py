"""The mutants of conditions: each that Python's syntax tree finds in the engine, and the tests that run its line."""

from __future__ import annotations

import ast
import hashlib
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

from coverage import CoverageData

from tests.mutants.mutant import Mutant
from tests.mutants.tree import FAILED, PASSED, Tree, TreeError

ENGINE = "workflows"
TURNED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}

# What pytest-cov is told: which test ran a line. Files are relative, for the tests run in a copy of the tree.
SETTINGS = "[run]\nrelative_files = true\nomit = */migrations/*\n"
SECONDS_FOR_MAP = 1800


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """The mutants of one file, without their tests: a condition that always or never holds, `and` and `or` without one
    of their parts, a comparison turned, a `not` dropped."""
    # In bytes of UTF-8, as the positions of the syntax tree are.
    starts = [0, *accumulate(len(line.encode()) for line in source.splitlines(keepends=True))]

    def place(line: int, column: int) -> int:
        return len(source.encode()[: starts[line - 1] + column].decode())

    def mutant(node: ast.expr, new: str, what: str) -> Mutant:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        span = place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)
        return Mutant(f"{file}:{node.lineno} {what}", file, *span, new, ())

    def text(node: ast.expr) -> str:
        return f"({ast.get_source_segment(source, node)})"

    for node in _nodes(ast.parse(source)):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            conditions = [node.test]
        else:
            conditions = node.ifs if isinstance(node, ast.comprehension) else []
        for condition in conditions:
            if isinstance(condition, ast.Constant):
                continue
            for always in ("True", "False"):
                yield mutant(condition, always, f"{_short(text(condition))} is {always}")
        match node:
            case ast.BoolOp(op=op, values=values):
                word = " and " if isinstance(op, ast.And) else " or "
                for dropped in values:
                    kept = word.join(text(each) for each in values if each is not dropped)
                    yield mutant(node, kept, f"without{word}{_short(text(dropped))}")
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                turned = TURNED[type(op)]
                yield mutant(node, f"{text(left)} {turned} {text(right)}", f"{_short(text(node))} turned to {turned}")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield mutant(node, text(operand), f"without not: {_short(text(node))}")


def all_mutants(root: Path) -> list[Mutant]:
    """The mutants of all conditions of the engine, file by file."""
    files = sorted(path for path in (root / ENGINE).rglob("*.py") if "migrations" not in path.parts)
    return [each for path in files for each in mutants_of(str(path.relative_to(root)), path.read_text())]


def changed_since(base: str, root: Path) -> Callable[[Mutant], bool]:
    """Whether a mutant is on a line that differs from the commit `base`. Raises TreeError when git does not know it."""
    command = ["git", "diff", "--unified=0", "--no-color", base, "--", ENGINE]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TreeError(f"git cannot compare with {base}: {done.stderr.strip()}")
    lines, file = set(), ""
    for told in re.findall(r"^(?:\+\+\+ b/(.+)|@@ \S+ \+(\d+)(?:,(\d+))? @@.*)$", done.stdout, re.MULTILINE):
        file = told[0] or file
        if told[1]:
            lines.update((file, int(told[1]) + number) for number in range(int(told[2] or 1)))
    return lambda mutant: (mutant.file, _line(mutant)) in lines


class Map:
    """Which tests run a line of the engine, in their own process. Made once for each state of the tree, in `var/`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        digest = hashlib.sha256()
        for folder in (ENGINE, "tests"):
            for path in sorted((root / folder).rglob("*.py")):
                digest.update(path.read_bytes())
        self._file = root / "var" / "mutants" / f"{digest.hexdigest()[:16]}.coverage"
        self._tests: dict[str, dict[int, list[str]]] = {}

    @property
    def is_made(self) -> bool:
        return self._file.exists()

    def make(self, tree: Tree) -> None:
        """Run `make test` in the copy of the tree, some minutes. Raises TreeError if it does not come to its end."""
        (tree.root / "map.ini").write_text(SETTINGS)
        options = [f"--cov={ENGINE}", "--cov-context=test", "--cov-report=", "--cov-config=map.ini", "-n", "2"]
        done = tree.run(options, timeout=SECONDS_FOR_MAP)
        if done.code not in (PASSED, FAILED):
            raise TreeError(f"The tests do not come to their end:\n{done.output[-3000:]}")
        shutil.rmtree(self._file.parent, ignore_errors=True)  # those of other states
        self._file.parent.mkdir(parents=True)
        shutil.copy(tree.root / ".coverage", self._file)

    def tests_of(self, mutant: Mutant) -> tuple[str, ...]:
        """The tests that run the mutant's line, those first that run the fewest lines: they look at little else."""
        if not self._tests:
            self._read()
        return tuple(self._tests.get(mutant.file, {}).get(_line(mutant), []))

    def _read(self) -> None:
        data = CoverageData(str(self._file))
        data.read()
        lines_of: Counter[str] = Counter()
        for file in data.measured_files():
            of_file: dict[int, list[str]] = defaultdict(list)
            for line, contexts in data.contexts_by_lineno(file).items():
                of_file[line] = sorted({test for context in contexts if (test := context.rpartition("|")[0])})
                lines_of.update(of_file[line])
            self._tests[file] = of_file
        for of_file in self._tests.values():
            for tests in of_file.values():
                tests.sort(key=lambda test: lines_of[test])


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """But for what is only declared (`Meta`), only for the type checker, or in an f-string (which has no positions)."""
    for node in ast.iter_child_nodes(tree):
        declared = isinstance(node, ast.ClassDef) and node.name == "Meta"
        typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not declared and not typing and not isinstance(node, ast.JoinedStr):
            yield node
            yield from _nodes(node)


def _line(mutant: Mutant) -> int:
    return int(mutant.name.split(" ")[0].rpartition(":")[2])


def _short(text: str) -> str:
    plain = " ".join(text[1:-1].split())
    return plain if len(plain) <= 60 else f"{plain[:57]}..."

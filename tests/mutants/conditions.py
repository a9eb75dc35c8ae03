"""The mutants that need no list: a condition of the sources always true or always false, half of it gone, or turned."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from copy import copy
from pathlib import Path

from tests.mutants.tree import Mutant, TreeError

SOURCES = "workflows"

TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq}
TURNED |= {new: old for old, new in TURNED.items()}


def all_mutants(root: Path) -> list[Mutant]:
    files = [path for path in sorted((root / SOURCES).rglob("*.py")) if "migrations" not in path.parts]
    return [mutant for path in files for mutant in mutants_of(path.read_text(), str(path.relative_to(root)))]


def mutants_of(source: str, file: str) -> list[Mutant]:
    """Each change to each condition of the file, from the top."""
    lines = source.split("\n")

    def offset(line: int, column: int) -> int:
        """The place in the text; the syntax tree counts the bytes of a line."""
        before = sum(len(text) + 1 for text in lines[: line - 1])
        return before + len(lines[line - 1].encode()[:column].decode())

    found = []
    for node, new in _changes(ast.parse(source)):
        assert node.end_lineno
        assert node.end_col_offset
        start, end = offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
        name = f"{' '.join(source[start:end].split())} -> {new}"
        found.append(Mutant(name, file, range(node.lineno, node.end_lineno + 1), start, end, new))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end))


def changed_lines(root: Path, base: str | None) -> dict[str, set[int]]:
    """By file, the lines that `base` does not have; without one, those that the branch `main` did not have."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
        if done.returncode:
            raise TreeError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    base = base or git("merge-base", "main", "HEAD").strip()
    diff = git("diff", "-U0", "--no-color", "--no-ext-diff", base, "--", SOURCES)
    changed: dict[str, set[int]] = {}
    for part in diff.split("\n+++ b/")[1:]:
        changed[part.partition("\n")[0]] = {
            line
            for start, count in re.findall(r"^@@ .* \+(\d+)(?:,(\d+))? @@", part, re.MULTILINE)
            for line in range(int(start), int(start) + int(count or 1))
        }
    for file in git("ls-files", "--others", "--exclude-standard", "--", SOURCES).splitlines():
        changed[file] = set(range(1, len((root / file).read_bytes().splitlines()) + 1))
    return changed


def _changes(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """What may be replaced, and what comes in its place."""
    for node in _walked(tree):
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield from _always(test)
            case ast.comprehension(ifs=tests):
                for test in tests:
                    yield from _always(test)
            case ast.BoolOp(op=operator, values=values):
                for left_out in values:
                    rest = [value for value in values if value is not left_out]
                    yield node, _text(rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest))
            case ast.Compare(ops=operators):
                for place, comparison in enumerate(operators):
                    if type(comparison) in TURNED:
                        turned = copy(node)
                        turned.ops = [*operators[:place], TURNED[type(comparison)](), *operators[place + 1 :]]
                        yield node, _text(turned)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield node, _text(operand)


def _walked(node: ast.AST) -> Iterator[ast.AST]:
    """All below. Not what is for the type checker, a Meta, or in an f-string, of which Python 3.11 knows no places."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.ClassDef(name="Meta") | ast.JoinedStr():
                continue
        yield child
        yield from _walked(child)


def _always(test: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(test, ast.Constant):
        return
    names_something = any(isinstance(node, ast.NamedExpr) for node in ast.walk(test))
    for always, operator in ((True, ast.Or()), (False, ast.And())):
        yield test, _text(ast.BoolOp(operator, [test, ast.Constant(always)])) if names_something else str(always)


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"

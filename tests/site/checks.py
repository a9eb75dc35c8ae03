"""The system checks by their ids, read from the source: what each says, and its hint."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.site.sources import ROOT

APPS = ("workflows", "staff", "onboarding", "config")
ID = re.compile(rf"(?:{'|'.join(APPS)})\.[EW]\d{{3}}")
NUMBER = re.compile(r"[EW]\d{3}")
# What stands for a value that is known only when the check runs.
VALUE = "…"


Node = ast.Module | ast.FunctionDef


def checks() -> dict[str, tuple[str, str]]:
    """The message and the hint of each check, by its id. A check that says several things has them all."""
    found: dict[str, tuple[list[str], list[str], str]] = {}
    for path in sorted(path for app in APPS for path in (ROOT / app).rglob("*.py") if "migrations" not in path.parts):
        for number, message, hint, told in checks_in(path):
            messages, hints, _ = found.setdefault(number, ([], [], told))
            messages += [message] if message and message not in messages else []
            hints += [hint] if hint and hint not in hints else []
    return {
        number: (" *Or:* ".join(said) or told, " *Or:* ".join(hints)) for number, (said, hints, told) in found.items()
    }


def checks_in(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """Of each place that names a check: its id, message, hint, and the docstring there, for want of a message."""
    app = path.relative_to(ROOT).parts[0]
    tree = ast.parse(path.read_text())
    for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]:
        told = (ast.get_docstring(scope) or ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")
        read = Reader(tree, scope)
        for node in nodes_of(scope):
            if isinstance(node, ast.Call):
                named = {keyword.arg: keyword.value for keyword in node.keywords}
                if "id" in named and ID.fullmatch(number := read.words(named["id"])) and node.args:
                    yield number, read.words(node.args[0]), read.words(named.get("hint")), told
            elif isinstance(node, ast.Tuple) and len(node.elts) == 4 and NUMBER.fullmatch(read.words(node.elts[1])):
                yield (
                    f"{app}.{read.words(node.elts[1])}",
                    f"The step {VALUE} {read.words(node.elts[2])}",
                    read.words(node.elts[3]),
                    told,
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                for number in (node.value, f"{app}.{node.value}"):
                    if ID.fullmatch(number):
                        yield number, "", "", told


def nodes_of(scope: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a module or function but those of the functions in it."""
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, ast.FunctionDef):
            yield node
            yield from nodes_of(node)


class Reader:
    """Reads texts in a function as far as the source says them."""

    def __init__(self, tree: ast.Module, scope: Node) -> None:
        self.assigned = [
            node for each in (tree, scope) for node in nodes_of(each) if isinstance(node, ast.Assign) and node.targets
        ]

    def words(self, node: ast.AST | None) -> str:
        """The text of an expression, with VALUE for what is known only when it runs; empty without an expression."""
        match node:
            case None:
                return ""
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr(values=values):
                return "".join(map(self.words, values))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.words(left) + self.words(right)
            case ast.IfExp(body=body):
                return self.words(body)
            case ast.Name(id=name, lineno=line):
                before = [
                    each.value
                    for each in self.assigned
                    if each.lineno < line and isinstance(each.targets[0], ast.Name) and each.targets[0].id == name
                ]
                return self.words(before[-1]) if before else VALUE
        return VALUE

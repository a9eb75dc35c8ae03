"""The list of mutants fits the sources, and the others are made and judged. `make mutants` runs them, not this."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, judge
from tests.mutants.conditions import mutants_of
from tests.mutants.named import FENCE, NamedMutantError, read
from tests.mutants.reach import Reach
from tests.mutants.tree import copied

SHAPES = """\
def area(width, height):
    if width < 0:
        return 0
    return width * height


def name(width):
    return "square" if width else "point"
"""
TESTS = """\
from workflows.shapes import area


def test_an_area():
    assert (area(3, 2), area(-3, 2)) == (6, 0)
"""


def test_every_fence_is_on_the_list_and_the_list_fits_the_sources() -> None:
    """A fence that no test would miss is not there: the list names, of each, a test that sees that it is missing."""
    taken_out = [(mutant.file, mutant.start) for mutant in read(ROOT) if mutant.new == f"({FENCE} OR true)"]
    there = [
        (str(path.relative_to(ROOT)), found.start())
        for path in (ROOT / "workflows").rglob("*.py")
        for found in re.finditer(FENCE, path.read_text())
    ]
    assert sorted(taken_out) == sorted(there)


def test_a_list_that_does_not_fit_says_where() -> None:
    with pytest.raises(NamedMutantError, match=r"'no fence': .*/attempt_log\.py has 'depth' 0 times, and not once"):
        read(ROOT, "== workflows/state/attempt_log.py\nno fence\n    - depth\n    > test_it_looks_nothing_up\n")


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("x = ä and not b", ["ä and not b -> (not b)", "ä and not b -> (ä)", "not b -> (b)"]),
        ("x = a <= b == c", ["a <= b == c -> (a < b == c)", "a <= b == c -> (a <= b != c)"]),
        ("x = [a for a in b if a]", ["a -> True", "a -> False"]),
        ("while (a := b()): pass", ["a := b() -> ((a := b()) or True)", "a := b() -> ((a := b()) and False)"]),
        ("if TYPE_CHECKING: import a", []),
    ],
)
def test_each_kind_of_mutant_is_made(source: str, made: list[str]) -> None:
    assert [mutant.name for mutant in mutants_of(source, "any.py")] == made


@pytest.mark.slow
def test_it_tells_what_is_seen_from_what_is_not(tmp_path: Path) -> None:
    # With an `__init__`, or the package that is installed would be found first.
    files = {"workflows/__init__.py": "", "workflows/shapes.py": SHAPES, "tests/test_shapes.py": TESTS}
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    with copied(tmp_path, with_server=False) as tree:
        reach = Reach(tmp_path / "var" / "map.json", tree)
        assert reach.update() == []
        verdicts = [judge(reach.with_tests(mutant), tree, 60) for mutant in mutants_of(SHAPES, "workflows/shapes.py")]
    assert {verdict.mutant.name: verdict.outcome for verdict in verdicts} == {
        "width < 0 -> True": "killed",
        "width < 0 -> False": "killed",
        "width < 0 -> (width <= 0)": "survived",
        "width -> True": "not-reached",
        "width -> False": "not-reached",
    }
    assert (tmp_path / "workflows/shapes.py").read_text() == SHAPES, "the checkout is not touched"

"""The list of mutants fits the sources. The mutants themselves are run by `make mutants`, not here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, judge
from tests.mutants.conditions import mutants_of
from tests.mutants.mutant import Mutant
from tests.mutants.named import FENCE, NamedMutantError, read
from tests.mutants.tree import copied

SOURCE = "def area(width, height):\n    if width < 0:\n        return 0\n    return width * height\n"
TESTS = "from shapes import area\n\ndef test_an_area():\n    assert area(3, 2) == 6\n"


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


def test_it_tells_what_is_seen_from_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(SOURCE)
    (tmp_path / "test_shapes.py").write_text(TESTS)
    with copied(tmp_path, with_server=False) as tree:
        seen, unseen = (
            judge(_replacing(old, new), tree, timeout=60) for old, new in [("width *", "width +"), ("< 0", "< 1")]
        )
    assert (seen.told, unseen.told) == ("test_shapes.py::test_an_area", "SURVIVED")
    assert (tmp_path / "shapes.py").read_text() == SOURCE, "the checkout is not touched"


def test_each_condition_is_taken_out_in_each_way() -> None:
    source = "def some(a, b):\n    if a and not b:  # é\n        return [x for x in a if x < b]\n"
    found = {mutant.applied_to(source) for mutant in mutants_of("some.py", source)}
    conditions = ["True", "False", "(a)", "(not b)", "a and (b)"]
    assert found == {source.replace("a and not b", each) for each in conditions} | {
        source.replace("x < b", each) for each in ["True", "False", "(x) <= (b)"]
    }


def _replacing(old: str, new: str) -> Mutant:
    start = SOURCE.index(old)
    return Mutant(old, "shapes.py", start, start + len(old), new, ("test_shapes.py",))

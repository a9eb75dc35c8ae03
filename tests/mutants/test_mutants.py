"""The list of mutants fits the sources, and the program tells those that are seen from those that are not.

The mutants themselves are run by `make mutants`, not here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.mutants import __main__ as program
from tests.mutants.__main__ import ROOT, judge, judge_all
from tests.mutants.mutant import Mutant, MutantError, faults_of
from tests.mutants.mutations import MUTANTS
from tests.mutants.tree import Tree, TreeError, copied

FENCE = "{FENCE}"
# Seconds. Long for a test that adds two numbers, short for one that never ends.
SOON = 2.0


def test_the_list_fits_the_sources() -> None:
    assert faults_of(MUTANTS, ROOT) == []


def test_every_fence_is_on_the_list() -> None:
    """A fence that no test would miss is not there: whoever adds one, adds its mutant."""
    taken_out = {
        (mutant.file, mutant.position_in((ROOT / mutant.file).read_text()) + mutant.old.index(FENCE))
        for mutant in MUTANTS
        if FENCE in mutant.old and f"({FENCE} OR true)" in mutant.new
    }
    there = {
        (str(path.relative_to(ROOT)), place)
        for path in (ROOT / "workflows").rglob("*.py")
        for source in [path.read_text()]
        for place in range(len(source))
        if source.startswith(FENCE, place)
    }
    assert taken_out == there


def test_it_names_what_is_on_the_list() -> None:
    done = mutants("--list", "--only", "beginning a call")
    assert done.returncode == 0
    assert "fence: beginning a call, or an undo" in done.stdout
    assert "making a wait" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "no such mutant"], "No mutant has 'no such mutant' in its name, its file or its tests."),
        (["--only", "("], "argument --only: '(' will not do"),
        (["--timeout", "soon"], "argument --timeout: 'soon' will not do"),
    ],
)
def test_it_says_what_is_wrong_with_an_argument(arguments: list[str], complaint: str) -> None:
    done = mutants(*arguments)
    assert done.returncode != 0
    assert complaint in done.stderr


def mutants(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.mutants", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


# --- A small tree ---------------------------------------------------------------------------------------

SOURCE = '''\
def area(width: int, height: int) -> int:
    """Of a rectangle, or of none."""
    if width < 0:
        return 0
    return width * height
'''
TESTS = """\
from shapes import area

def test_an_area():
    assert area(3, 2) == 6

def test_none():
    assert area(-1, 1) <= 0
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    """The copy of a tree with a module and its tests; no server."""
    root = tmp_path_factory.mktemp("checkout")
    (root / "shapes.py").write_text(SOURCE)
    (root / "test_shapes.py").write_text(TESTS)
    with copied(root, with_server=False) as tree:
        yield tree
    assert not tree.root.exists()
    assert sorted(path.name for path in root.iterdir()) == ["shapes.py", "test_shapes.py"], "it was not touched"


def mutant(old: str, new: str, *tests: str, nth: int = 0) -> Mutant:
    return Mutant(f"{old} -> {new}", "shapes.py", old, new, tests or ("test_shapes.py",), nth)


def track(description: str, total: int) -> Callable[[int], None]:
    return lambda completed: None


def test_it_tells_what_is_seen_from_what_is_not(tree: Tree) -> None:
    """As long as what it replaces, and written within the same second: Python's caches do not hide that."""
    seen, unseen = mutant("width * height", "width + height"), mutant("width < 0", "width > 9")
    verdicts = judge_all([seen, unseen], tree, timeout=60, exit_first=False, track=track)
    assert [(verdict.killed, verdict.told) for verdict in verdicts] == [
        (True, "test_shapes.py::test_an_area"),
        (False, "SURVIVED"),
    ]
    assert (tree.root / "shapes.py").read_text() == SOURCE, "the next one begins with the source as it was"


def test_it_stops_at_the_first_that_survives_if_it_is_told_to(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    unseen, seen = mutant("width < 0", "width > 9"), mutant("width * height", "width + height")
    verdicts = judge_all([unseen, seen], tree, timeout=60, exit_first=True, track=track)
    assert [verdict.mutant for verdict in verdicts] == [unseen]
    assert capsys.readouterr().err == "SURVIVED: width < 0 -> width > 9 (shapes.py)\n"


@pytest.mark.parametrize(("killed", "code"), [(True, 0), (False, 1)])
def test_its_exit_code_says_whether_one_has_survived(
    killed: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mutants", "--only", "beginning a call"])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(program, "run", lambda chosen, **_: [program.Verdict(chosen[0], killed, "told", 1.0)])
    assert program.main() == code
    assert f"1 mutants, {int(killed)} killed, {int(not killed)} survived" in capsys.readouterr().out


def test_what_hangs_is_ended_and_told(tree: Tree) -> None:
    verdict = judge(mutant("return width * height", "\n    while True: ..."), tree, timeout=SOON)
    assert (verdict.killed, verdict.told) == (True, "hangs")


def test_a_mutant_that_cannot_even_be_imported_shows_nothing(tree: Tree) -> None:
    with pytest.raises(TreeError, match="the tests do not even run"):
        judge(mutant("def area", "def size"), tree, timeout=60)


def test_tests_that_fail_without_any_mutant_show_nothing(tree: Tree) -> None:
    (tree.root / "test_broken.py").write_text("def test_it():\n    assert False\n")
    with pytest.raises(TreeError, match=r"Without any mutant, test_broken\.py::test_it fails"):
        judge_all(
            [mutant("width < 0", "width > 9", "test_broken.py")],
            tree,
            timeout=60,
            exit_first=False,
            track=track,
        )


def test_a_list_that_does_not_fit_says_where(tree: Tree) -> None:
    list_of_faults = faults_of(
        [
            mutant("depth", "0"),
            mutant("width", "0"),
            mutant("width", "0", nth=9),
            mutant("def area", "def def area"),
            mutant("width < 0", "width < 0"),
            mutant("width < 0", "False", "test_shapes.py::test_a_volume", "test_solids.py"),
            mutant("width < 0", "False"),
        ],
        tree.root,
    )
    assert [fault.partition(": ")[2] or fault for fault in list_of_faults] == [
        "shapes.py does not have 'depth'. What has become of it?",
        "shapes.py has 'width' 3 times. Say more of it, or nth.",
        "Two mutants are called 'width -> 0'.",
        "shapes.py has 'width' 3 times, and no 9th.",
        "invalid syntax, line 1.",
        "'width < 0 -> width < 0' changes nothing in shapes.py.",
        "there is no test test_shapes.py::test_a_volume.",
        "there is no test test_solids.py.",
        "Two mutants are called 'width < 0 -> False'.",
    ]


def test_the_nth_of_several_is_meant(tree: Tree) -> None:
    assert mutant("width", "1", nth=3).applied_to(SOURCE).endswith("return 1 * height\n")
    with pytest.raises(MutantError):
        mutant("width", "1").applied_to(SOURCE)

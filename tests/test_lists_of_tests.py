"""Lists of tests name what is there: else what has moved runs where it is too slow, or stops `.ci/run`."""

import re

from tests.conftest import SLOW
from tests.edges import ROOT, TENTH


def test_lists_of_tests_name_what_is_there() -> None:
    in_ci = re.findall(r"\btests/[\w./]+", (ROOT / ".ci/run").read_text())
    with_roles = re.findall(r"addprefix (tests/\w+/),(.*?)\)", (ROOT / "Makefile").read_text(), re.S)
    as_roles = [f"{folder}{path}" for folder, paths in with_roles for path in re.findall(r"[\w/]+\.py", paths)]
    assert len(as_roles) > 15
    named = {*SLOW, *(ROOT / path for path in [*TENTH, *in_ci, *as_roles])}
    assert not [path for path in named if not path.exists()]

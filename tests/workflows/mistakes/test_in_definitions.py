from __future__ import annotations

import pytest

from tests.workflows.mistakes.shop import Write, mistakes, said

MISTAKES = mistakes("definitions.md")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_check_says_what_is_wrong_and_what_to_write(mistake: str, write: Write) -> None:
    code, says = MISTAKES[mistake]
    write(code)
    assert " ".join(said()) == says


def test_it_says_nothing_of_what_is_right(write: Write) -> None:
    write("def ship(*, workflow, context) -> dict[str, str] | None: return {'parcel': 'p-1'}")
    assert said() == []

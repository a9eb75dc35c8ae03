from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from tests.workflows.mistakes.shop import Write, mistakes, said

MISTAKES = mistakes("settings.md")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_check_says_what_is_wrong_and_what_to_write(mistake: str, write: Write, settings: Settings) -> None:
    code, says = MISTAKES[mistake]
    write("def ship(*, workflow, context): return {}")
    stated: dict[str, Any] = {}
    exec(code, stated)  # noqa: S102 (ours)
    for name, value in stated.items():
        if name.isupper() and name != "ORDER":
            setattr(settings, name, value)
    assert " ".join(said()) == says

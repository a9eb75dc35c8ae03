"""A project of a new author's: `shop/workflow.py`, and what `manage.py check` says about it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.core import checks
from pytest_django import Settings

from workflows.definition import definitions

IMPORTS = """\
import time
from datetime import timedelta
from functools import partial
from pydantic import BaseModel
from django.db import connection, transaction
from workflows import waits
from workflows.correctable import Correctable
from workflows.definition import Retention, Retry, Step, WorkflowDefinition
from workflows.effects import key_for
from workflows.errors import RetryableStepError, StepError
from workflows.wording import StepWords, Wording
class OrderContext(BaseModel):
    parcel: str | None = None
    weight: int | None = None
"""
# Line 1 of a mistake, as its author counts.
FIRST = IMPORTS.count("\n") + 1
ORDER = 'ORDER = WorkflowDefinition(name="order", steps=[ship], context_class=OrderContext)\n'

Write = Callable[[str], None]


def source(code: str) -> str:
    """The module with this code; with a definition of the one step `ship` if the code has none."""
    return IMPORTS + code.strip("\n") + "\n" + ("" if "ORDER" in code else ORDER)


def said(**options: object) -> list[str]:
    """What `manage.py check` says: the id, the message and the hint of each."""
    definitions.cache_clear()
    found = checks.run_checks(**options)  # type: ignore[arg-type]
    return [places(f"{each.id}: {each.msg} {each.hint or ''}".strip()) for each in found]


def places(text: str) -> str:
    """The text with the lines of `shop/workflow.py` as its author counts them, without the folder."""
    return re.sub(
        r"[^\s(]*/shop/workflow.py:(\d+)", lambda found: f"shop/workflow.py:{int(found[1]) - FIRST + 1}", text
    )


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[Write]:
    """Writes `shop/workflow.py`, whose ORDER is the only definition."""
    settings.WORKFLOWS, settings.SUBMISSION_WORKFLOW = ["shop.workflow.ORDER"], ""
    monkeypatch.syspath_prepend(str(tmp_path))
    definitions.cache_clear()

    def write(code: str) -> None:
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop" / "workflow.py").write_text(source(code))

    yield write
    for name in ("shop", "shop.workflow"):
        sys.modules.pop(name, None)
    definitions.cache_clear()


def mistakes(page: str) -> dict[str, tuple[str, str]]:
    """The mistakes of a page beside this module by their headings, each with its code and what is said about it."""
    text = (Path(__file__).parent / page).read_text()
    found = re.findall(r"^## ([^\n]+)\n\n```python\n(.*?)```\n\n((?:>[^\n]*\n)+)", text, re.DOTALL | re.MULTILINE)
    assert len(found) == text.count("\n## ")
    return {title: (code, " ".join(re.sub("^>", "", says, flags=re.MULTILINE).split())) for title, code, says in found}

"""With DEBUG an author sees the errors of a step whole; without, nobody does, and no table has them in either case."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import Settings

from tests import engine
from tests.engine import define, submit, work
from tests.workflows.admin.conftest import Login, as_
from tests.workflows.admin.test_workflow_page import page
from tests.workflows.admin.walk.kept import every_column
from workflows import authors
from workflows.definition import Step
from workflows.models import Workflow

__all__ = ["as_"]

pytestmark = engine.ENGINE


def ship(*, workflow: Workflow, context: object) -> None:
    raise ValueError("canary is no address")


@pytest.mark.parametrize("debug", [True, False])
def test_only_with_debug_are_errors_whole_in_the_log_and_on_the_page(
    debug: bool, settings: Settings, tmp_path: Path, as_: Login, capfd: pytest.CaptureFixture[str]
) -> None:
    settings.DEBUG, settings.BASE_DIR = debug, tmp_path
    define([Step(ship, best_effort=True), ship])
    row = work(submit())
    said = (capfd.readouterr().err, page(as_("engineer"), row))
    assert ["ValueError: canary is no address" in each for each in said] == [debug, debug]
    assert authors.told(row.key, 1).count(f'authors.py", line {ship.__code__.co_firstlineno + 1}, in ship') == (
        2 if debug else 0
    )
    assert "canary" not in page(as_("support"), row)
    assert "canary" not in every_column()
    settings.DEBUG = False
    assert "canary" not in page(as_("engineer"), row)


@pytest.mark.parametrize(("debug", "status"), [(True, "FAILED"), (False, "COMPLETE")])
def test_only_with_debug_does_a_step_fail_that_changes_its_context(
    debug: bool, status: str, settings: Settings, tmp_path: Path
) -> None:
    def change(*, workflow: Workflow, context: engine.Context) -> None:
        context.text = "lost"

    settings.DEBUG, settings.BASE_DIR = debug, tmp_path
    define([change])
    row = work(submit())
    assert (row.status, row.context.get("text")) == (status, None)


def test_the_newest_files_are_kept_and_only_this_account_reads_them(settings: Settings, tmp_path: Path) -> None:
    settings.DEBUG, settings.BASE_DIR = True, tmp_path
    for number in range(authors.FILES + 2):
        authors.tell("order-7", number, "ship", ValueError("canary"))
    folder = tmp_path / "var" / "errors"
    assert (len(list(folder.glob("*.txt"))), folder.stat().st_mode & 0o777) == (authors.FILES, 0o700)


def test_a_disk_without_room_changes_no_decision(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "var").write_text("no folder")
    settings.DEBUG, settings.BASE_DIR = True, tmp_path
    define([ship])
    assert work(submit()).last_error_class == "ValueError"

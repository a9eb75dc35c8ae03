from __future__ import annotations

from pathlib import Path

import pytest
from django.db import connections
from pytest_django import Settings

from tests.engine import submit, worker
from tests.workflows.mistakes.shop import Write, mistakes, places
from workflows import authors
from workflows.models import Attempt, Workflow

MISTAKES = mistakes("first_run.md")

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "attempt_log"])


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_first_run_says_what_is_wrong_and_where(
    mistake: str, write: Write, settings: Settings, tmp_path: Path
) -> None:
    settings.DEBUG, settings.BASE_DIR = True, tmp_path
    code, says = MISTAKES[mistake]
    write(code)
    row = submit({"name": "Lovelace"}, workflow_type="order")
    worker().run(drain=True)
    connections.close_all()
    row = Workflow.objects.get(pk=row.pk)
    error = ", ".join(filter(None, (row.last_error_class, row.last_error_code)))
    said = f"{row.status} at {row.current_step}, {error}: {places(row.last_error_message)}"
    whole = authors.told(row.key, Attempt.objects.filter(workflow=row).latest("number").number)
    # Python's own suggestions differ from version to version.
    last = [
        each.partition(". Did you mean: ")[0] for each in whole.splitlines() if each.startswith(row.last_error_class)
    ]
    said += " " + "".join(each for each in last[-1:] if row.last_error_message not in each)
    assert said.strip() == says

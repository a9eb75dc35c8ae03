"""The list of attempts on a workflow's page: what looks for an answer every hour does not fill it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import words
from workflows.console.attempts import listed
from workflows.models import Attempt, Workflow

pytestmark = pytest.mark.django_db

LOOK = {"step": "charge", "undo": True, "outcome": "waiting"}
DOWN = {"error_class": "RetryableStepError", "error_code": "unreachable", "error_message": "Refused."}


def reversal(looks: int, **entry: Any) -> Workflow:
    """A workflow that has failed, whose reversal failed, and which has looked so many times since."""
    row = rows.compensating()
    rows.attempt(row, 2, outcome="retry", steps=[{**LOOK, "outcome": "undo_failed", "ms": 7.5, **DOWN}])
    look(row, range(3, 3 + looks), **entry)
    return row


def look(row: Workflow, numbers: range, *, ended: str = "waiting", **entry: Any) -> None:
    """Each takes another time."""
    Attempt.objects.bulk_create(
        Attempt(
            workflow=row,
            number=number,
            worker="host-a:41",
            closed_at=timezone.now(),
            outcome=ended,
            steps=[{**LOOK, "ms": number / 8, **entry}],
        )
        for number in numbers
    )


def shown(row: Workflow) -> list[tuple[int, int]]:
    """The numbers of the attempts that have a line each, with how many before it found the same."""
    return [(each.attempt.number, each.same) for each in listed(row)]


def summaries(html: str) -> list[str]:
    return [
        words(each) for each in re.findall(r'<details data-key="attempt.*?<summary>(.*?)</summary>', html, re.DOTALL)
    ]


def test_those_that_looked_and_found_the_same_are_one_line(as_: Login) -> None:
    row = reversal(looks=30)
    assert shown(row) == [(32, 29), (2, 0), (1, 0)]
    html = as_("support").get(f"/admin/workflows/workflow/{row.pk}/change/").content.decode()
    last, before = summaries(html)
    assert last.startswith("Attempt 32: waiting at ")
    assert last.endswith("; attempts 3 to 31 found the same")
    assert before.startswith("Attempt 2: retry at ")
    assert "found the same" not in before
    assert "Steps in attempt 1" in html, "the run that failed is still to be seen"
    assert "before these" not in html


def test_one_that_found_something_else_has_a_line_of_its_own() -> None:
    row = reversal(looks=3)
    look(row, range(6, 8), **DOWN)
    look(row, range(8, 9))
    look(row, range(9, 11), step="reserve")
    assert shown(row) == [(10, 1), (8, 0), (7, 1), (5, 2), (2, 0), (1, 0)]


@pytest.mark.parametrize(
    ("outcome", "entry"),
    [
        ("retry", {"outcome": "undo_failed", **DOWN}),
        ("waiting", {"outcome": "undo_failed", **DOWN}),
        ("compensated", {"outcome": "undone"}),
        ("waiting", {"undo": False}),
        ("lost", {}),
    ],
)
def test_what_has_reversed_or_called_anything_is_never_folded(outcome: str, entry: dict[str, Any]) -> None:
    row = reversal(looks=0)
    look(row, range(3, 6), ended=outcome, **entry)
    assert shown(row) == [(number, 0) for number in (5, 4, 3, 2, 1)]


def test_after_a_month_of_looks_what_came_before_them_is_found_in_few_reads() -> None:
    row = reversal(looks=720)
    with CaptureQueriesContext(connection) as queries:
        assert shown(row) == [(722, 719), (2, 0), (1, 0)]
    assert len(queries) < 10

"""How far a workflow is: what an attempt recorded, what the ledger has, and where a worker died, say the same."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from workflows.definition import Step, WorkflowDefinition
from workflows.features.retention import content
from workflows.models import Attempt, Effect, Workflow

pytestmark = pytest.mark.django_db

ALL = [{"step": name, "outcome": "recorded", "ms": 1} for name in ("reserve", "review", "charge", "thank")]


LETTER = WorkflowDefinition(
    name="letter", steps=[Step(rows.thank, best_effort=True), rows.review], context_class=rows.Context
)


@pytest.fixture(autouse=True)
def _letters(parcels: None, settings: Any) -> None:
    settings.WORKFLOWS = [*settings.WORKFLOWS, f"{__name__}.LETTER"]


def crashed(died_in: str = "charge", **fields: Any) -> Workflow:
    row = rows.workflow(**fields)
    rows.attempt(row, outcome="crashed", died_in=died_in)
    return row


def done(row: Workflow, *steps: str, **fields: Any) -> Workflow:
    """As the ledger has the calls of these steps."""
    for step in steps:
        known = {"state": "done", "result": {}, "attempt": 1, "idempotency_key": f"{row.key}:{step}"}
        Effect.objects.create(workflow=row, step=step, **{**known, **fields})
    return row


def vanished() -> Workflow:
    return crashed("")


def complete(*steps: dict[str, Any], **fields: Any) -> Workflow:
    row = rows.complete(**fields)
    rows.attempt(row, outcome="complete", steps=[*steps])
    return row


def emptied() -> Workflow:
    row = complete(*ALL, completed_at=timezone.now() - timedelta(days=400))
    with transaction.atomic():
        content.empty([row.pk])
    return row


def killed_again() -> Workflow:
    """After an attempt that said what it did, one that says nothing."""
    row = done(rows.failed(status="PENDING", completed_at=None), "reserve")
    rows.attempt(row, 2, outcome="killed", died_in="charge")
    return row


def tried_again() -> Workflow:
    row = done(rows.failed(status="PENDING", completed_at=None), "reserve")
    Attempt.objects.create(workflow=row, number=2, worker="host-a:41")
    return row


MADE: dict[str, tuple[Any, list[str], str, str]] = {
    "died mid-way": (lambda: done(crashed(), "reserve"), ["recorded", "ran", "waiting", ""], "2 of 4 done", "current"),
    "died at its start": (lambda: crashed("reserve"), ["waiting", "", "", ""], "0 of 4 done", "current"),
    "died after its call": (
        lambda: done(crashed(), "reserve", "charge"),
        ["recorded", "ran", "recorded", ""],
        "3 of 4 done",
        "current",
    ),
    "died in a step that has left the list": (
        lambda: done(crashed("tell"), "reserve"),
        ["recorded", "", "", ""],
        "1 of 4 done",
        "current",
    ),
    "vanished": (
        lambda: done(vanished(), "reserve", "charge"),
        ["recorded", "ran", "recorded", ""],
        "3 of 4 done",
        "current",
    ),
    "did not apply": (
        lambda: done(vanished(), "reserve", state="skipped"),
        ["skipped", "", "", ""],
        "1 of 4 done",
        "current",
    ),
    "a best-effort step may have failed": (
        lambda: crashed("review", workflow_type="letter"),
        ["", "waiting"],
        "0 of 2 done",
        "current",
    ),
    "unclear": (
        lambda: done(crashed(), "charge", state="unknown"),
        ["", "ran", "waiting", ""],
        "1 of 4 done",
        "current",
    ),
    "runs": (lambda: done(rows.running(), "reserve"), ["recorded", "", "", ""], "1 of 4 done", "current"),
    "not begun": (rows.workflow, ["", "", "", ""], "0 of 4 done", "ahead"),
    "killed again": (killed_again, ["recorded", "ran", "waiting", ""], "2 of 4 done", "current"),
    "tried again": (tried_again, ["ran", "skipped", "failed", ""], "2 of 4 done", "failed"),
    "reversed": (
        lambda: done(rows.failed(), "reserve", state="undone"),
        ["undone", "skipped", "failed", ""],
        "1 of 4 done, 1 reversed",
        "failed",
    ),
    "reversed after a crash": (
        lambda: done(done(crashed(), "reserve", state="undone"), "reserve", undo=True),
        ["undone", "ran", "waiting", ""],
        "1 of 4 done, 1 reversed",
        "current",
    ),
    "died as it was retried after a reversal": (
        lambda: done(crashed("reserve"), "charge", state="undone"),
        ["waiting", "", "undone", ""],
        "0 of 4 done, 1 reversed",
        "current",
    ),
    "by the records": (lambda: complete(*ALL), ["recorded"] * 4, "4 steps, 0.0 s", "done"),
    "by an older list": (lambda: complete(*ALL[:3]), ["recorded"] * 3 + ["skipped"], "4 steps, 0.0 s", "done"),
    "emptied": (emptied, ["recorded"] * 4, "4 steps, 0.0 s", "done"),
}


@pytest.mark.parametrize("how", MADE)
def test_steps_phases_and_the_ledger_say_the_same(as_: Login, how: str) -> None:
    make, outcomes, summary, state = MADE[how]
    page = as_("support").get(f"/admin/workflows/workflow/{make().pk}/change/").context
    (phase,) = page["phases"]
    assert ([step.outcome for step in phase.steps], phase.summary, phase.state) == (outcomes, summary, state)

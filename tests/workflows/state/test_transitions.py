"""What says when a workflow is run is written in one module: the rest of the engine calls its functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from tests.workflows import rows
from workflows.errors import ClaimLost, Suspend
from workflows.models import Workflow
from workflows.postgres.statements import execute
from workflows.state import transitions

PACKAGE = Path(transitions.__file__).parents[1]
HOME = PACKAGE / "state" / "transitions.py"
# What moves rows through time in the tests of those who write steps: no engine runs while it does.
TEST_KIT = PACKAGE / "testing"

COLUMNS = {
    *("status", "compensating", "completed_at", "invisible_until", "begun"),
    *("waiting_for", "wake_on", "wake_matching", "seen_until", "parked_on", "parked_at"),
    *("current_step", "retry_count", "unavailable_count"),
}

# What a person says of a workflow at rest, and how its secrets are sealed, is no part of its schedule.
BESIDE = {"acknowledged_failure", "payload"}

WRITES = re.compile(r"\b(update|insert\s+into)\s+(only\s+)?\"?workflows_workflow\b(?!_)", re.IGNORECASE)
INTAKE = re.compile(r"insert\s+into\s+\"?workflows_workflow\b(?!_)", re.IGNORECASE)


def sources() -> Iterator[Path]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if "migrations" not in path.parts and path != HOME and TEST_KIT not in path.parents:
            yield path


def faults_in(source: str) -> list[str]:
    """What of a module's source writes the schedule of a workflow, or may."""
    faults: list[str] = []
    if "update" not in source.lower():  # to parse it takes long
        return faults
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and WRITES.search(node.value):
            if not INTAKE.search(node.value):
                faults.append(f"line {node.lineno}: SQL that updates the table")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in ("update", "bulk_update", "update_or_create"):
                continue
            named = {keyword.arg for keyword in node.keywords}
            of_workflows = "Workflow.objects" in ast.unparse(node.func)
            if (of_workflows and (not named or named - BESIDE)) or named & COLUMNS:
                faults.append(f"line {node.lineno}: {ast.unparse(node)}")
    return faults


def test_nothing_else_writes_the_schedule_of_a_workflow() -> None:
    faults = {str(path.relative_to(PACKAGE)): faults_in(path.read_text()) for path in sources()}
    assert {path: found for path, found in faults.items() if found} == {}


@pytest.mark.parametrize(
    "source",
    [
        "Workflow.objects.filter(pk=1).update(**fields)",
        "due.update(invisible_until=later)",
        "cursor.execute(f'''WITH a AS (update only workflows_workflow SET queue = {queue})''')",
    ],
)
def test_what_would_write_it_is_found(source: str) -> None:
    assert faults_in(source)


def test_the_columns_of_the_schedule_are_columns_of_the_row() -> None:
    assert {field.name for field in Workflow._meta.get_fields()} >= COLUMNS


@pytest.mark.django_db
def test_whatever_the_row_was_before_the_schedule_is_whole() -> None:
    """Of each change of state: no column of the state before is left behind."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    row = rows.workflow(
        status="FAILED",
        completed_at=now,
        retry_count=3,
        unavailable_count=2,
        current_step="pay",
        waiting_for="a parcel",
        parked_on="payments",
        parked_at=now,
    )
    transitions.reopen(row.pk, expires_after=None, begun=False)
    assert schedule_of(row) == ("PENDING", False, False, False, "", [], {}, None, "", "pay", 0, 0)
    transitions.await_release(row.pk, transitions.AT_ONCE, workflow_type="of tomorrow")
    release = "a release that knows the workflow type of tomorrow"
    assert schedule_of(row) == ("PENDING", False, False, False, release, [], {}, None, "", "pay", 0, 0)
    transitions.schedule_retry(
        row.pk,
        transitions.AT_ONCE,
        woken_by=transitions.Awaited("", ["paid"], {"n": 7}, "8:8:"),
        step="ship",
        failures=transitions.Failures(2, 1),
        extra_columns={"last_error_code": "late"},
    )
    assert schedule_of(row) == ("PENDING", False, False, True, "", ["paid"], {"n": 7}, "8:8:", "", "ship", 2, 1)
    transitions.park(row.pk, transitions.Parking("payments", timedelta(hours=1), since=now))
    waiting = "the service payments, which is unavailable"
    assert schedule_of(row) == ("PENDING", False, False, True, waiting, [], {}, None, "payments", "ship", 2, 1)
    assert row.parked_at == now
    transitions.begin_compensation(row.pk, extra_columns={})
    assert Workflow.objects.get(pk=row.pk).parked_at is None
    assert schedule_of(row) == ("PENDING", True, False, True, "", [], {}, None, "", "ship", 2, 1)
    transitions.end_compensation(row)
    assert schedule_of(row) == ("FAILED", False, True, True, "", [], {}, None, "", "ship", 2, 1)
    transitions.reopen_compensation(row.pk)
    assert schedule_of(row) == ("PENDING", True, False, True, "", [], {}, None, "", "ship", 2, 1)
    transitions.fail(row, step="undo ship", failures=transitions.Failures(1), extra_columns={})
    assert schedule_of(row) == ("FAILED", False, True, True, "", [], {}, None, "", "undo ship", 1, 0)
    transitions.reopen(row.pk, expires_after=None)
    execute(transitions.complete_sql(), {"workflow_id": row.pk, "context": '{"parcel": 1}'})
    assert schedule_of(row) == ("COMPLETE", False, True, True, "", [], {}, None, "", "", 0, 0)
    row.refresh_from_db()
    assert (row.context, row.last_error_code) == ({"parcel": 1}, "")


@pytest.mark.django_db
def test_what_is_gone_on_with_has_started() -> None:
    changes: list[Callable[[Workflow], object]] = [
        lambda row: transitions.suspend(
            row, Suspend("a parcel", wake_on=[], until=timezone.now()), step="ask", extra_columns={}
        ),
        lambda row: transitions.suspend_for_answer(row, Suspend("a person", wake_on=[], until=timezone.now())),
        lambda row: transitions.schedule_retry(
            row.pk, Now(), woken_by=transitions.NOTHING, step="pay", failures=transitions.Failures(1), extra_columns={}
        ),
        lambda row: transitions.reschedule(row.pk, Now()),
        lambda row: transitions.park(row.pk, transitions.Parking("payments", timedelta(hours=1))),
        lambda row: transitions.begin_compensation(row.pk, extra_columns={}),
        lambda row: transitions.reopen_compensation(row.pk),
        lambda row: transitions.reopen(row.pk, expires_after=None),
    ]
    for change in changes:
        row = rows.workflow()
        change(row)
        row.refresh_from_db()
        assert (row.status, row.begun) == ("PENDING", True)


def schedule_of(row: Workflow) -> tuple[object, ...]:
    row.refresh_from_db()
    return (
        *(row.status, row.compensating, row.completed_at is not None, row.begun, row.waiting_for, row.wake_on),
        *(row.wake_matching, row.seen_until, row.parked_on, row.current_step, row.retry_count, row.unavailable_count),
    )


@pytest.mark.django_db
def test_a_row_that_is_due_or_at_rest_is_not_made_due() -> None:
    assert not transitions.make_due(rows.workflow().pk)
    later = timezone.now() + timedelta(hours=1)
    assert not transitions.make_due(rows.workflow(status="FAILED", completed_at=Now(), invisible_until=later).pk)


@pytest.mark.django_db
def test_a_row_that_is_due_keeps_its_place() -> None:
    row = rows.workflow(created_at=timezone.now() - timedelta(hours=2))
    due = timezone.now() - timedelta(hours=1)
    Workflow.objects.filter(pk=row.pk).update(invisible_until=due)
    transitions.make_due(row.pk)
    row.refresh_from_db()
    assert row.invisible_until == due


@pytest.mark.django_db
def test_a_row_that_is_gone_is_not_written() -> None:
    with pytest.raises(ClaimLost):
        transitions.end_compensation(Workflow(pk=-1, workflow_type="test"))

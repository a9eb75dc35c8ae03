"""Types that this release does not know: rescheduled, for longer each time, until a worker starts that knows them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections

from tests import engine
from tests.engine import define, kinds, make_due, seconds_until_due, submit, work, worker
from tests.postgres import without_triggers
from tests.workflows.cancelling import nothing
from workflows import operations
from workflows.engine import unknown_types
from workflows.models import Attempt, Event, Workflow
from workflows.state import transitions

pytestmark = engine.ENGINE

TYPE = "of_the_next_release"


@pytest.fixture(autouse=True)
def without_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_types, "JITTER", 0.0)


def as_if_put_off_before(seconds: float) -> None:
    with connection.cursor() as cursor, without_triggers():
        cursor.execute("UPDATE workflows_event SET at = clock_timestamp() - %s * interval '1 second'", [seconds])


def waits_for_a_release(**fields: Any) -> Workflow:
    """A workflow of the type "test" that a release which did not know it has rescheduled for an hour."""
    row = {"waiting_for": "a release that knows the workflow type test", **fields}
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp() + interval '1 hour'")
        return submit(**{"invisible_until": cursor.fetchone()[0], **row})


def started(**options: Any) -> None:
    """A worker that starts, and works until nothing is due."""
    define([nothing])
    worker(**options).run(drain=True)
    connections.close_all()


def test_it_is_rescheduled_for_as_long_as_it_waits_already_from_a_minute_to_an_hour() -> None:
    workflow, delays = submit(workflow_type=TYPE), []
    for waited in (0, 1, 60, 120, 1000, 3600, 7200):
        as_if_put_off_before(waited)
        make_due(workflow)
        workflow = work(workflow)
        delays.append(round(seconds_until_due(workflow)))
        assert (workflow.status, workflow.waiting_for) == ("PENDING", f"a release that knows the workflow type {TYPE}")
    assert delays == pytest.approx([60, 60, 60, 120, 1000, 3600, 3600], abs=2)


def test_the_history_says_so_once_and_no_look_makes_an_attempt() -> None:
    workflow = submit(workflow_type=TYPE)
    for _ in range(3):
        make_due(workflow)
        workflow = work(workflow)
    event = Event.objects.get(workflow=workflow)
    assert (event.kind, event.attempt) == ("put_back", None)
    assert event.detail == {"reason": f"It waits for a release that knows the workflow type {TYPE}."}
    assert not Attempt.objects.exists()


def test_put_off_again_after_it_was_known_it_is_told_again_and_starts_with_a_minute() -> None:
    workflow = work(submit(workflow_type=TYPE))
    as_if_put_off_before(3600)
    transitions.make_known_due("default", [TYPE], limit=1)
    workflow = work(workflow)
    assert kinds(workflow) == ["put_back", "put_back"]
    assert seconds_until_due(workflow) == pytest.approx(60, abs=2)
    make_due(workflow)
    work(workflow)
    assert seconds_until_due(workflow) == pytest.approx(60, abs=2), "since it was told last"


def test_an_attempt_that_has_lost_its_worker_is_closed_all_the_same() -> None:
    """Of a release that knew the type. Else the row would read as running for as long as it waits."""
    workflow = submit(workflow_type=TYPE)
    Attempt.objects.create(workflow=workflow, number=1, worker="gone:1")
    workflow = work(workflow)
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.closed_at is not None) == ("vanished", True)
    assert kinds(workflow) == ["vanished", "put_back"]
    assert Workflow.objects.with_state().get(pk=workflow.pk).state == "waiting"


def test_what_its_attempts_died_of_is_not_forgotten_over_it() -> None:
    workflow = submit(workflow_type=TYPE)
    died = {"outcome": "crashed", "closed_at": workflow.created_at, "died_in": "nothing", "died_how": "SIGSEGV"}
    for number in (1, 2, 3):
        Attempt.objects.create(workflow=workflow, number=number, worker="gone:1", **died)
    work(workflow)
    define([nothing])
    Workflow.objects.update(workflow_type="test")
    make_due(workflow)
    assert work(workflow).last_error_code == "poison"


def test_it_can_be_cancelled_while_it_waits_and_while_it_is_looked_at() -> None:
    workflow, ada = work(submit(workflow_type=TYPE)), User.objects.create_superuser("ada")
    operations.cancel(workflow.pk, user=ada, reason="Asked for by phone.")
    assert Workflow.objects.get(pk=workflow.pk).status == "FAILED"

    workflow = submit(workflow_type=TYPE)
    with engine.another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_workflow WHERE id = %s FOR UPDATE", [workflow.pk])
        operations.cancel(workflow.pk, user=ada, reason="Asked for by phone.")
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code, Attempt.objects.count()) == ("FAILED", "cancelled", 1)


def test_in_slices_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_types, "SLICE", 2)
    many = [waits_for_a_release() for _ in range(5)]
    define([nothing])
    assert unknown_types.make_due("default") == len(many)
    assert not Workflow.objects.exclude(waiting_for="").exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"waiting_for": "a signal"},
        {"waiting_for": "a release that knows the workflow type test_2"},
        {"waiting_for": "a release that knows the workflow type other", "workflow_type": "other"},
        {"queue": "another"},
    ],
)
def test_it_leaves_alone_what_waits_for_something_else(fields: dict[str, Any]) -> None:
    workflow = waits_for_a_release(**fields)
    started()
    after = Workflow.objects.get(pk=workflow.pk)
    assert (after.status, after.waiting_for) == ("PENDING", workflow.waiting_for)
    assert after.invisible_until == workflow.invisible_until


def test_a_row_that_another_worker_holds_does_not_keep_it_waiting() -> None:
    held, free = waits_for_a_release(), waits_for_a_release()
    with engine.another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_workflow WHERE id = %s FOR UPDATE", [held.pk])
        started()
    assert Workflow.objects.get(pk=free.pk).status == "COMPLETE"
    assert Workflow.objects.get(pk=held.pk).status == "PENDING"

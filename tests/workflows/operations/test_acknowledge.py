"""Acknowledging a failure: who may, of what, with which note, and what becomes of it when it fails again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from tests.workflows import rows
from workflows import operations
from workflows.definition import definitions
from workflows.errors import NotAllowed
from workflows.features.deferred_steps import operations as deferred_steps
from workflows.models import Event, FollowUp, Workflow
from workflows.models.follow_up import GIVEN_UP
from workflows.models.workflow import UNACKNOWLEDGED
from workflows.state import transitions

NOTE = "The patient was called, and will send it again."


def acknowledge(row: Workflow, user: User, reason: str = NOTE) -> None:
    """As on a page that was loaded just now."""
    operations.acknowledge(row.pk, user=user, reason=reason, seen=left(row))


def left(row: Workflow) -> list[int]:
    return operations.failures_left(Workflow.objects.get(pk=row.pk))


def listed() -> list[int]:
    """What still needs a person, as the database has it."""
    failed = Workflow.objects.filter(UNACKNOWLEDGED).values_list("pk", flat=True)
    return sorted([*failed, *FollowUp.objects.filter(GIVEN_UP).values_list("workflow_id", flat=True)])


def fail_again(row: Workflow) -> None:
    """As a worker writes it."""
    with transaction.atomic():
        transitions.fail(row, extra_columns={})


def test_who_and_why_stand_in_the_history_and_nothing_else_changes(boss: User) -> None:
    row = rows.failed()
    before = Workflow.objects.filter(pk=row.pk).values().get()
    with pytest.raises(NotAllowed, match="needs a note"):
        acknowledge(row, boss, reason="  \n")
    acknowledge(row, boss, reason=f"  {NOTE} ")
    event = Event.objects.get()
    assert (event.kind, event.actor, event.step, event.detail) == ("acknowledged", "boss", "charge", {"reason": NOTE})
    after = Workflow.objects.filter(pk=row.pk).values().get()
    assert after == {**before, "acknowledged_failure": before["completed_at"]}
    assert (left(row), listed()) == ([], [])


def test_what_has_not_failed_is_not_acknowledged(boss: User) -> None:
    for make, word in [
        (rows.left_undone, "complete"),
        (rows.cancelled, "cancelled"),
        (rows.running, "running"),
        (rows.compensating, "reversing"),
    ]:
        row, events = make(), Event.objects.count()
        with pytest.raises(
            NotAllowed, match=f"^Only what has failed, or was given up, can be .*; this one is {word}\\.$"
        ):
            acknowledge(row, boss)
        assert (Event.objects.count(), listed()) == (events, [])


def test_a_second_person_is_told_who_was_first_and_when(boss: User) -> None:
    row = rows.failed()
    seen = left(row)
    acknowledge(row, User.objects.create_superuser("anna"))
    with pytest.raises(
        NotAllowed, match=r"^anna has acknowledged it already, at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\.$"
    ):
        operations.acknowledge(row.pk, user=boss, reason=NOTE, seen=seen)
    assert Event.objects.count() == 1


def test_it_does_so_whatever_release_retried_it_and_however_the_clock_was_set(boss: User) -> None:
    """Nothing is reset by a retry, and no time is compared but for being another."""
    for ago in (timedelta(hours=1), -timedelta(hours=1)):
        row = rows.failed()
        acknowledge(row, boss)
        assert row.pk not in listed()
        Workflow.objects.filter(pk=row.pk).update(completed_at=timezone.now() - ago)
        assert row.pk in listed()


def test_a_failure_that_has_not_been_seen_is_not_acknowledged(boss: User) -> None:
    row = rows.failed()
    seen = left(row)
    operations.retry(row.pk, user=boss, reason="Once more.")
    with pytest.raises(NotAllowed, match="this one is queued"):
        operations.acknowledge(row.pk, user=boss, reason=NOTE, seen=seen)
    fail_again(row)
    for stale in (seen, []):
        with pytest.raises(NotAllowed, match=r"^It has failed again since you looked at it\.$"):
            operations.acknowledge(row.pk, user=boss, reason=NOTE, seen=stale)
    assert listed() == [row.pk]
    acknowledge(row, boss)
    assert listed() == []


# --- Deferred steps that were given up ----------------------------------------------------------------


def test_a_deferred_step_that_was_given_up_is_acknowledged_and_stays_on_record(boss: User) -> None:
    row, other = rows.given_up(), rows.given_up()
    kept = FollowUp.objects.filter(workflow=row).values("step", "due_at", "failures").get()
    events = Event.objects.filter(workflow=row).count()
    acknowledge(row, boss)
    event = Event.objects.filter(workflow=row).latest("id")
    assert (event.kind, event.actor, event.detail) == ("acknowledged", "boss", {"reason": NOTE, "steps": ["thank"]})
    assert FollowUp.objects.filter(workflow=row).values("step", "due_at", "failures").get() == kept
    assert Event.objects.filter(workflow=row).count() == events + 1
    assert listed() == [other.pk]
    with pytest.raises(NotAllowed, match=r"^boss has acknowledged it already"):
        acknowledge(row, boss)


@pytest.fixture
def parcels(settings: Any) -> Iterator[None]:
    settings.WORKFLOWS = ["tests.workflows.rows.PARCEL"]
    definitions.cache_clear()
    yield
    definitions.cache_clear()


def test_what_is_given_up_again_after_it_was_run_again_needs_a_person_again(boss: User, parcels: None) -> None:
    row = rows.given_up()
    acknowledge(row, boss)
    deferred_steps.follow_up(row.pk, user=boss, step="thank")
    assert (listed(), left(row)) == ([], [])
    FollowUp.objects.update(due_at=None)  # as a worker gives it up
    assert listed() == [row.pk]
    acknowledge(row, boss)
    assert listed() == []


def test_one_that_was_given_up_since_is_not_acknowledged_unseen(boss: User) -> None:
    row = rows.given_up()
    seen = left(row)
    FollowUp.objects.create(workflow=row, step="tell", queue=row.queue, due_at=None)
    with pytest.raises(NotAllowed, match="since you looked"):
        operations.acknowledge(row.pk, user=boss, reason=NOTE, seen=seen)
    acknowledge(row, boss)
    assert Event.objects.latest("id").detail["steps"] == ["thank", "tell"]
    assert listed() == []


def test_one_that_is_still_to_be_tried_is_left_alone(boss: User) -> None:
    row = rows.given_up()
    due = FollowUp.objects.create(workflow=row, step="tell", queue=row.queue, due_at=timezone.now())
    acknowledge(row, boss)
    due.refresh_from_db()
    assert due.acknowledged_failure is None

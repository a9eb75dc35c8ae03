"""A task is assigned to a colleague: by whom, to whom, and against whoever decides it at that moment."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.utils import timezone

from tests import engine
from tests.workflows.operations.people import task, user
from workflows import operations
from workflows.errors import NotAllowed
from workflows.models import Event, ManualTask


@pytest.fixture
def lead(db: None) -> User:
    return user("lead", "assign")


@pytest.fixture
def anna(db: None) -> User:
    return user("anna", "decide")


def assign(row: ManualTask, by: User, to: User, **also: Any) -> str:
    seen = [row.assignee_id] if row.assignee_id else []
    return operations.assign(row.pk, **{"user": by, "to": to.pk, "seen": seen, **also})


# --- By whom, and to whom -----------------------------------------------------------------------


def test_a_task_becomes_a_colleagues_with_a_note(lead: User, anna: User, ben: User) -> None:
    row = task()
    assert assign(row, lead, anna, reason=" She knows him. ") == "It is assigned to anna."
    row.refresh_from_db()
    assert (row.assignee, row.claimed_at, row.state) == (anna, None, "open")
    ((kind, actor, detail),) = Event.objects.values_list("kind", "actor", "detail")
    assert (kind, actor) == ("task_assigned", "lead")
    assert detail == {"reason": "She knows him.", "task": row.pk, "to": "anna"}
    with pytest.raises(NotAllowed, match=r"^It is assigned to anna\.$"):
        operations.approve(row.pk, user=ben)
    operations.approve(row.pk, user=anna)


def test_a_lead_is_asked_about_an_open_task_until_somebody_has_it(lead: User, anna: User) -> None:
    row = task()
    with pytest.raises(PermissionDenied):
        operations.ask_lead(row.pk, user=user("eve", "assign"), reason="He is angry.")
    operations.ask_lead(row.pk, user=anna, reason="He is angry.")
    assert ManualTask.objects.get(lead_asked_at__isnull=False) == row
    assign(row, lead, anna)
    assert ManualTask.objects.get(lead_asked_at=None) == row
    operations.approve(row.pk, user=anna)
    with pytest.raises(NotAllowed):
        operations.ask_lead(row.pk, user=anna, reason="He is angry.")


def test_who_may_decide_hands_on_what_is_free_or_their_own(anna: User, ben: User) -> None:
    row = task()
    assign(row, anna, ben)
    row.refresh_from_db()
    with pytest.raises(NotAllowed, match=r"^It is assigned to ben\.$"):
        assign(row, anna, anna)
    assign(row, ben, anna)
    row.refresh_from_db()
    assert row.assignee == anna


def test_what_one_may_not_decide_one_does_not_hand_on(anna: User, ben: User) -> None:
    ben.groups.set([Group.objects.create(name="clinicians")])
    row, own = task(team="clinicians"), task(four_eyes=True, requested_by=anna)
    with pytest.raises(NotAllowed, match=r"^It is for the team clinicians, and you are not in it\.$"):
        assign(row, anna, ben)
    with pytest.raises(NotAllowed, match="You requested this yourself"):
        assign(own, anna, ben)


def test_with_the_permission_any_task_is_assigned_anew_and_unassigned(lead: User, anna: User, ben: User) -> None:
    row = task(assignee=anna, claimed_at=timezone.now())
    assign(row, lead, ben)
    operations.release_task(row.pk, user=lead)
    row.refresh_from_db()
    assert row.assignee is None
    with pytest.raises(PermissionDenied):
        operations.approve(row.pk, user=lead)  # to assign is not to decide


def test_it_is_assigned_only_to_who_may_decide_it(lead: User, anna: User) -> None:
    for row, to in [
        (task(), lead),
        (task(team="clinicians"), anna),
        (task(four_eyes=True, requested_by=anna), anna),
        (task(team="operations"), anna),
    ]:
        with pytest.raises(NotAllowed, match=r"^This user cannot decide it: choose somebody else\.$"):
            assign(row, lead, to)
    for gone in ({"is_active": False}, {"is_active": True, "is_staff": False}):
        User.objects.filter(pk=anna.pk).update(**gone)
        with pytest.raises(NotAllowed, match="This user cannot decide it"):
            assign(task(), lead, anna)
    assert not Event.objects.exists()


def test_a_question_of_the_engines_is_assigned_to_who_may_answer_it(lead: User) -> None:
    row = task(team="operations")
    assign(row, lead, user("erik", "resolve"))
    row.refresh_from_db()
    assert row.assignee is not None
    assert ManualTask.objects.with_claims().get(pk=row.pk).is_held


def test_what_is_over_is_not_assigned(lead: User, anna: User) -> None:
    row = task(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(NotAllowed, match=r"^It expired at"):
        assign(row, lead, anna)


def test_what_became_of_it_since_the_page_was_shown_is_not_undone(lead: User, anna: User, ben: User) -> None:
    row = task()
    operations.claim_task(row.pk, user=anna)
    with pytest.raises(NotAllowed, match=r"^anna has claimed it, at"):
        assign(row, lead, ben)  # the page had said that it was nobody's
    operations.release_task(row.pk, user=anna)
    with pytest.raises(NotAllowed, match=r"^It is unassigned by now"):
        assign(row, lead, ben, seen=[anna.pk])


# --- Two at once --------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_an_assignment_does_not_wait_for_whoever_decides() -> None:
    lead, anna, row = user("lead", "assign"), user("anna", "decide"), task()
    with engine.another_connection() as other:
        other.execute("BEGIN")
        other.execute("UPDATE workflows_manualtask SET reason = 'x' WHERE id = %s", [row.pk])
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '2s'")  # so that whoever waits for it does not do so for ever
        asked = timezone.now()
        with pytest.raises(NotAllowed, match=r"^Somebody is changing it at this moment: look at it again"):
            assign(row, lead, anna)
        assert timezone.now() - asked < timedelta(seconds=1)
        other.execute("ROLLBACK")
    connection.close()
    assert not Event.objects.exists()

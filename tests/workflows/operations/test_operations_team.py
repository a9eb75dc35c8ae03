"""The team `operations`: who is in it, and what its members decide."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied

from tests.groups import make_groups
from tests.workflows import rows
from workflows import operations
from workflows.errors import NotAllowed
from workflows.models import ManualTask


@pytest.fixture(autouse=True)
def groups(db: None) -> None:
    make_groups()


def member(name: str, *groups: str, **fields: Any) -> User:
    user = User.objects.create_user(name, is_staff=True, **fields)
    user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return user


def question(**fields: Any) -> ManualTask:
    """A question of the engine's, for the team."""
    return rows.open_task(rows.waiting(task=False), **{"task_type": "keeps_dying", "team": "operations", **fields})


@pytest.mark.parametrize("group", ["support lead", "engineer", "operations"])
def test_a_member_answers_the_engines_questions_and_decides_nothing_else(group: str) -> None:
    lena = member("lena", group)
    operations.claim_task(question().pk, user=lena)
    operations.release_task(ManualTask.objects.get().pk, user=lena)
    operations.approve(ManualTask.objects.get().pk, user=lena)
    assert ManualTask.objects.get().state == "approved"
    for row, why in [
        (rows.open_task(rows.waiting(task=False)), r"^You decide what is for the team operations, and this is not\.$"),
        (rows.open_task(rows.waiting(task=False), team="clinicians"), r"^It is for the team clinicians, and you are"),
    ]:
        for operation in (operations.claim_task, operations.approve):
            with pytest.raises(NotAllowed, match=why):
                operation(row.pk, user=lena)
        row.refresh_from_db()
        assert (row.state, row.assignee) == ("open", None)


def test_a_groups_own_tasks_are_not_decided_by_a_permission_to_resolve() -> None:
    row = rows.open_task(rows.waiting(task=False), team="engineer")
    with pytest.raises(NotAllowed, match=r"^You decide what is for the team operations"):
        operations.approve(row.pk, user=member("erik", "engineer"))
    row.refresh_from_db()
    assert row.state == "open"


def test_an_approver_is_told_that_it_is_for_the_team() -> None:
    carla, row = member("carla", "approver"), question()
    with pytest.raises(NotAllowed, match=r"^It is for the team operations, and you are not in it\.$"):
        operations.approve(row.pk, user=carla)


def test_an_approver_who_is_in_the_group_too_decides_both() -> None:
    carla = member("carla", "approver", "operations")
    for row in (question(), rows.open_task(rows.waiting(task=False))):
        operations.approve(row.pk, user=carla)


@pytest.mark.parametrize("group", ["support", "auditor"])
def test_the_others_may_not_decide_at_all(group: str) -> None:
    with pytest.raises(PermissionDenied):
        operations.approve(question().pk, user=member("sam", group))


def test_what_a_member_has_claimed_is_theirs_until_they_leave() -> None:
    lena, erik = member("lena", "support lead"), member("erik", "engineer")
    row = question()
    operations.claim_task(row.pk, user=lena)
    with pytest.raises(NotAllowed, match=r"^lena has claimed it"):
        operations.approve(row.pk, user=erik)
    lena.groups.clear()
    operations.approve(row.pk, user=erik)


def test_a_claim_of_what_is_for_another_team_counts_for_nothing() -> None:
    lena, carla = member("lena", "support lead"), member("carla", "approver")
    row = rows.open_task(rows.waiting(task=False), assignee=lena)
    operations.approve(row.pk, user=carla)  # lena could not decide it

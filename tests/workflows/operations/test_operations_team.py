"""The team `operations`: who is in it, and what its members decide."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from tests.groups import make_groups
from tests.workflows.operations.people import task, user
from workflows import operations
from workflows.checks_of_people import check_deciders
from workflows.errors import NotAllowed
from workflows.models import ManualTask


@pytest.fixture(autouse=True)
def groups(db: None) -> None:
    make_groups()


def question(**fields: Any) -> ManualTask:
    """A question of the engine's, for the team."""
    return task(**{"task_type": "keeps_dying", "team": "operations", **fields})


@pytest.mark.parametrize("group", ["support lead", "operations"])
def test_a_member_answers_the_engines_questions_and_decides_nothing_else(group: str) -> None:
    lena = user("lena", teams=(group,))
    operations.claim_task(question().pk, user=lena)
    operations.release_task(ManualTask.objects.get().pk, user=lena)
    operations.approve(ManualTask.objects.get().pk, user=lena)
    assert ManualTask.objects.get().state == "approved"
    for row, why in [
        (task(), r"^You decide what is for the team operations, and this is not\.$"),
        (task(team="clinicians"), r"^It is for the team clinicians, and you are"),
    ]:
        for operation in (operations.claim_task, operations.approve):
            with pytest.raises(NotAllowed, match=why):
                operation(row.pk, user=lena)
        row.refresh_from_db()
        assert (row.state, row.assignee) == ("open", None)


def test_check_and_page_say_where_no_user_may_decide() -> None:
    """A member of a team has no right to decide by that, and no task is left to superusers."""
    ada, boss = user("ada", teams=("payers",)), User.objects.create_superuser("boss")
    for row in (task(team="payers"), task(team="payers"), question()):
        assert operations.why_nobody_decides(row).startswith(f"Nobody in the team {row.team} may decide it: its member")
    assert "the group support lead, too" in operations.why_nobody_decides(row)

    def warned() -> list[str]:
        return [each.msg for each in check_deciders(databases=["default"])]

    assert not list(check_deciders(databases=None))
    assert warned() == [
        "No user may decide what the team 'operations' is asked; 1 tasks wait for it.",
        "No user may decide what the team 'payers' is asked; 2 tasks wait for it.",
    ]
    ada.groups.add(Group.objects.get(name="approver"))
    user("lena", teams=("support lead",))
    assert warned() == []
    ada.delete()
    boss.groups.add(Group.objects.get(name="payers"))
    assert warned() == [], "they are in the team themselves"
    task()
    assert warned() == [], "theirs, if no team is named"
    User.objects.update(is_staff=False)
    assert "No user may decide the tasks without a team; 1 wait." in warned()


def test_a_groups_own_tasks_are_not_decided_by_a_permission_to_resolve() -> None:
    row = task(team="engineer")
    with pytest.raises(NotAllowed, match=r"^You decide what is for the team operations"):
        operations.approve(row.pk, user=user("erik", teams=("engineer",)))
    row.refresh_from_db()
    assert row.state == "open"


def test_what_a_member_has_claimed_is_theirs_until_they_leave() -> None:
    lena, erik = user("lena", teams=("support lead",)), user("erik", teams=("engineer",))
    row = question()
    operations.claim_task(row.pk, user=lena)
    with pytest.raises(NotAllowed, match=r"^lena has claimed it"):
        operations.approve(row.pk, user=erik)
    lena.groups.clear()
    operations.approve(row.pk, user=erik)


def test_a_claim_of_what_is_for_another_team_counts_for_nothing() -> None:
    lena, carla = user("lena", teams=("support lead",)), user("carla", teams=("approver",))
    row = task(assignee=lena)
    operations.approve(row.pk, user=carla)  # lena could not decide it

"""The team `operations`: who is in it, and what its members decide."""

from __future__ import annotations

from typing import Any

import pytest

from tests.groups import make_groups
from tests.workflows.operations.people import task, user
from workflows import operations
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

"""The team `operations`: who is in it, and whom the engine asks. And to whom tasks are assigned."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import ASSIGNING, NEXT_TASK, OPERATIONS_TEAM, TEAM

_WITHOUT = f"{TEAM}test_without_the_team_everybody_who_may_decide_is_asked"

MUTANTS: list[Mutant] = [
    *in_(
        "models/manual_task.py",
        (
            "who resolves decides what has no team",
            "self if user.has_perm(DECIDE) else self.filter(team=OPERATIONS)",
            "self",
            f"{OPERATIONS_TEAM}test_a_member_answers_the_engines_questions_and_decides_nothing_else",
        ),
        (
            "who decides answers the questions to operations",
            "if user.has_perm(RESOLVE) else theirs",
            "",
            f"{OPERATIONS_TEAM}test_an_approver_is_told_that_it_is_for_the_team",
        ),
        (
            "a claim of a member counts for nothing",
            " | Q(Exists(_assignee_with(RESOLVE)), team=OPERATIONS)",
            "",
            f"{OPERATIONS_TEAM}test_what_a_member_has_claimed_is_theirs_until_they_leave",
        ),
        (
            "a claim counts of who may resolve, whatever it is of",
            "Q(Exists(_assignee_with(RESOLVE)), team=OPERATIONS)",
            "Q(Exists(_assignee_with(RESOLVE)))",
            f"{OPERATIONS_TEAM}test_a_claim_of_what_is_for_another_team_counts_for_nothing",
        ),
    ),
    *in_(
        "models/manual_task.py",
        (
            "a task is assigned to whoever requested it",
            "Q(pk=task.requested_by_id) if task.four_eyes else Q(pk=None)",
            "Q(pk=None)",
            f"{ASSIGNING}test_it_is_assigned_only_to_who_may_decide_it",
        ),
        (
            "a task is assigned to another team",
            "    if task.team:\n",
            "    if False:\n",
            f"{ASSIGNING}test_it_is_assigned_only_to_who_may_decide_it",
        ),
        (
            "a task is assigned to somebody who is no staff",
            "users.filter(theirs, is_staff=True)",
            "users.filter(theirs)",
            f"{ASSIGNING}test_it_is_assigned_only_to_who_may_decide_it",
        ),
    ),
    *in_(
        "operations/tasks.py",
        (
            "the next task is one that somebody else has claimed",
            "return _decidable(ManualTask.objects.all(), user).free_for(user)",
            "return _decidable(ManualTask.objects.all(), user)",
            f"{NEXT_TASK}test_only_what_the_user_may_decide_and_of_the_same_type_comes_next",
        ),
        (
            "the next task is for another team",
            "return _decidable(ManualTask.objects.all(), user).free_for(user)",
            "return _undecided(ManualTask.objects.all()).free_for(user)",
            f"{NEXT_TASK}test_only_what_the_user_may_decide_and_of_the_same_type_comes_next",
        ),
        (
            "an assignment waits for whoever decides",
            "select_for_update(nowait=True, no_key=True)",
            "select_for_update(no_key=True)",
            f"{ASSIGNING}test_an_assignment_does_not_wait_for_whoever_decides",
        ),
        (
            "an assignment undoes a claim that its user has not seen",
            "if seen != [task.assignee_id] * (task.assignee_id is not None):",
            "if False:",
            f"{ASSIGNING}test_what_became_of_it_since_the_page_was_shown_is_not_undone",
        ),
        (
            "an assignment does not look at what became of the task",
            "        if why_not := why_not_assign(task, user):\n",
            "        if why_not := '':\n",
            f"{ASSIGNING}test_what_is_over_is_not_assigned",
        ),
        (
            "an assignment does not lock its row",
            "        _lock_task(task_id)\n",
            "",
            f"{ASSIGNING}test_an_assignment_does_not_wait_for_whoever_decides",
        ),
    ),
    *in_(
        "waits/team.py",
        (
            "the team is asked where there is no such group",
            "SELECT EXISTS (SELECT FROM auth_group WHERE name = %s) AND EXISTS (",
            "SELECT %s <> '' AND EXISTS (",
            f"{_WITHOUT}[there_is_no_such_group]",
        ),
        (
            "a team of users who have left is asked",
            "u.is_active AND ",
            "",
            f"{_WITHOUT}[its_only_member_is_inactive]",
        ),
        (
            "a team of users who are no staff is asked",
            "u.is_staff AND ",
            "",
            f"{_WITHOUT}[its_only_member_is_no_staff]",
        ),
        (
            "a team of nobody is asked",
            'OPERATIONS if has_members else ""',
            "OPERATIONS",
            f"{_WITHOUT}[nobody_is_in_it]",
        ),
    ),
]

"""What needs a person: what is on the list, for whom, and what takes it off."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import ACKNOWLEDGE, NEEDS_A_PERSON, NEEDS_A_PERSON_READS

_WITHOUT_RIGHT = f"{NEEDS_A_PERSON}test_what_one_may_not_see_is_not_shown"

MUTANTS: list[Mutant] = [
    *in_(
        "operations/acknowledging.py",
        (
            "anybody may acknowledge",
            "    require(user, ACKNOWLEDGE)\n",
            "",
            f"{ACKNOWLEDGE}test_it_is_refused_without_the_permission",
        ),
        (
            "a failure is acknowledged without a note",
            "    if not reason.strip():\n",
            "    if False:\n",
            f"{ACKNOWLEDGE}test_it_needs_a_note",
        ),
        (
            "a failure that was not seen is acknowledged",
            "        if sorted(seen) != left:\n",
            "        if False:\n",
            f"{ACKNOWLEDGE}test_a_failure_that_has_not_been_seen_is_not_acknowledged",
            f"{ACKNOWLEDGE}test_one_that_was_given_up_since_is_not_acknowledged_unseen",
        ),
        (
            "what somebody has cancelled is acknowledged",
            "        case Workflow.Status.FAILED if workflow.cancelled_at is None:\n",
            "        case Workflow.Status.FAILED:\n",
            f"{ACKNOWLEDGE}test_what_has_not_failed_is_not_acknowledged",
        ),
        (
            "a failure is acknowledged twice",
            "if failed_at and failed_at != workflow.acknowledged_failure else []",
            "if failed_at else []",
            f"{ACKNOWLEDGE}test_a_second_person_is_told_who_was_first_and_when",
        ),
    ),
    *in_(
        "models/workflow.py",
        (
            "a failure after a retry is acknowledged already",
            '~Q(\n    acknowledged_failure=F("completed_at")\n)',
            "Q(acknowledged_failure=None)",
            f"{ACKNOWLEDGE}test_what_fails_again_after_a_retry_needs_a_person_again",
        ),
        (
            "what was cancelled needs a person",
            'UNACKNOWLEDGED = Q(status="FAILED", cancelled_at=None, ',
            'UNACKNOWLEDGED = Q(status="FAILED", ',
            f"{NEEDS_A_PERSON}test_it_has_nothing_that_waits_for_nobody",
        ),
    ),
    *in_(
        "models/follow_up.py",
        (
            "what is given up again is acknowledged already",
            'GIVEN_UP = Q(due_at=None) & ~Q(acknowledged_failure=F("created_at"))',
            "GIVEN_UP = Q(due_at=None, acknowledged_failure=None)",
            f"{ACKNOWLEDGE}test_what_is_given_up_again_after_it_was_run_again_needs_a_person_again",
        ),
    ),
    *in_(
        "needs_a_person.py",
        (
            "what falls due between two pages is passed over",
            "    at = after.at if after else timezone.now()\n",
            "    at = timezone.now()\n",
            f"{NEEDS_A_PERSON}test_what_falls_due_between_two_pages_is_not_passed_over",
        ),
        (
            "what is as old as the last of a page is shown again",
            "(0 if branch.source > source else _LARGEST_KEY)",
            "0",
            f"{NEEDS_A_PERSON}test_page_by_page_each_is_there_once",
        ),
        (
            "what is as old as the last of a page is passed over",
            "(0 if branch.source > source else _LARGEST_KEY)",
            "_LARGEST_KEY",
            f"{NEEDS_A_PERSON}test_page_by_page_each_is_there_once",
        ),
        (
            "a task is overdue and in time",
            "    not_late = Q(due_at=None) | Q(due_at__gt=at)\n",
            "    not_late = Q()\n",
            f"{NEEDS_A_PERSON}test_what_is_overdue_comes_first_and_is_marked",
        ),
        (
            "whoever may not see tasks reads of them",
            "if not asked.user.has_perm(SEE_TASKS) or asked.kind not in",
            "if asked.kind not in",
            f"{_WITHOUT_RIGHT}[view_workflow-expected1]",
        ),
        (
            "whoever may not see workflows reads of failures",
            "[Workflow.objects.filter(UNACKNOWLEDGED)] if is_asked and asked.user.has_perm(SEE_WORKFLOWS) else []",
            "[Workflow.objects.filter(UNACKNOWLEDGED)] if is_asked else []",
            f"{_WITHOUT_RIGHT}[view_manualtask-expected0]",
        ),
        (
            "whoever may not see workflows reads of follow-ups",
            "[rows] if is_asked and asked.user.has_perm(SEE_WORKFLOWS) else []",
            "[rows] if is_asked else []",
            f"{_WITHOUT_RIGHT}[view_manualtask-expected0]",
        ),
        (
            "the tasks of my teams are those of all teams",
            "        if is_asked(team) and asked.kind in",
            "        if asked.kind in",
            f"{NEEDS_A_PERSON}test_whose_it_is_is_a_filter",
        ),
        (
            "what is claimed is unassigned",
            "        tasks = tasks.free()\n",
            "        pass\n",
            f"{NEEDS_A_PERSON}test_whose_it_is_is_a_filter",
        ),
        (
            "a follow-up needs a person while its workflow is undone",
            "FollowUp.objects.filter(GIVEN_UP, workflow__status=Workflow.Status.COMPLETE)",
            "FollowUp.objects.filter(GIVEN_UP)",
            f"{NEEDS_A_PERSON}test_it_has_nothing_that_waits_for_nobody",
        ),
        (
            "a page reads all that there is",
            '.values_list("source", "at", "key")[:limit]',
            '.values_list("source", "at", "key")',
            f"{NEEDS_A_PERSON_READS}test_a_page_reads_as_much_of_a_large_table_as_of_a_small_one",
        ),
    ),
]

"""What Home's verdict rests on, and who sees what of it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import NAVIGATION, VERDICT

MUTANTS: list[Mutant] = [
    *in_(
        "health.py",
        (
            "a worker that has stopped is live",
            "Q(stopped_at=None, last_seen",
            "Q(last_seen",
            f"{VERDICT}test_without_a_live_worker_nothing_is_well",
        ),
        (
            "a worker that is silent is live",
            "Q(stopped_at=None, last_seen__gte=at - timedelta(seconds=lease.lease_seconds()))",
            "Q(stopped_at=None)",
            f"{VERDICT}test_without_a_live_worker_nothing_is_well",
        ),
        (
            "what was cancelled counts as failed",
            'status="FAILED", cancelled_at=None, completed_at',
            'status="FAILED", completed_at',
            f"{VERDICT}test_each_number_leads_to_exactly_the_rows_that_it_counted",
        ),
        (
            "a link of the last hour shows what failed since",
            "completed_at__gte=since, completed_at__lt=until)",
            "completed_at__gte=since)",
            f"{VERDICT}test_each_number_leads_to_exactly_the_rows_that_it_counted",
        ),
        (
            "a worker for compensation only takes submissions",
            "(undoing if is_undoing else everything)",
            "undoing",
            f"{VERDICT}test_a_worker_for_compensation_only_takes_no_submission",
        ),
        (
            "what a worker runs waits",
            """                      WHERE NOT compensating
                        AND NOT EXISTS (SELECT FROM workflows_attempt a
                                         WHERE a.workflow_id = w.id AND a.closed_at IS NULL)
""",
            "                      WHERE NOT compensating\n",
            f"{VERDICT}test_the_oldest_is_one_that_a_live_worker_takes",
        ),
    ),
    *in_(
        "admin/home.py",
        (
            "numbers lead where one may not go",
            'user.has_perm(f"workflows.view_{link.model}")',
            "True",
            f"{VERDICT}test_it_leads_nobody_where_they_may_not_go",
        ),
        (
            "home names the task of another team",
            "return theirs.first() or shown.next_task",
            "return shown.next_task",
            "workflows/admin/test_lists.py::test_home_names_the_task_that_the_user_may_decide_before_those_of_others",
        ),
        (
            "home names no task to a user who decides none",
            "return theirs.first() or shown.next_task",
            "return theirs.first()",
            "workflows/admin/test_lists.py::test_home_names_the_task_that_the_user_may_decide_before_those_of_others",
        ),
    ),
    *in_(
        "admin/dialogues.py",
        (
            "a rejection without a reason is not told beside the field",
            'if self.cleaned_data.get("decision") == "reject" and',
            "if False and",
            "workflows/admin/test_decision_form.py::test_a_refusal_keeps_what_was_typed_where_there_is_still_something_to_decide",
        ),
    ),
    *in_(
        "admin/navigation.py",
        (
            "the bar has what one may not see",
            " if any(map(has_perm, permissions))]",
            "]",
            f"{NAVIGATION}test_it_has_the_pages_that_one_may_see_and_no_other",
        ),
    ),
]

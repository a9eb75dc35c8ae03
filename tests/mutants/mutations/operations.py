"""What people may do: guard, act, record."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import (
    CANCEL,
    CANCELLATION_REQUESTS,
    CHILDREN,
    OPERATIONS,
    TAKING_BACK,
    TWO_AT_ONCE,
    WAKERS,
)

# In operations.workflows._request_cancellation, one after the other.
_LOCKS_THE_QUESTIONS = (
    "        tasks = _lock_tasks(workflow_id, open_tasks)"
    "  # before the row is read: another user may hold both, to cancel it\n"
)
_READS_THE_ROW = '        workflow = Workflow.objects.with_state().defer("payload", "context").get(pk=workflow_id)\n'

MUTANTS: list[Mutant] = [
    *in_(
        "operations/guards.py",
        (
            "an operation waits for the worker that holds the row",
            "select_for_update(nowait=True, no_key=True)",
            "select_for_update(no_key=True)",
            f"{TWO_AT_ONCE}test_a_row_that_a_worker_holds_is_refused_without_waiting",
        ),
    ),
    *in_(
        "operations/tasks.py",
        (
            "a decision wakes before it is committed",
            "    waking.try_wake(task.workflow_id)\n",
            "        waking.try_wake(task.workflow_id)\n",
            f"{TWO_AT_ONCE}test_the_wake_up_comes_after_the_commit_of_the_signal",
        ),
        (
            "a decision wakes nobody",
            "    waking.try_wake(task.workflow_id)\n",
            "",
            f"{OPERATIONS}test_a_decision_is_kept_sent_to_the_inbox_and_wakes_the_workflow",
        ),
        (
            "a decision comes after the deadline",
            "tasks.open().filter(expires_at__gt=ClockTimestamp())",
            "tasks.open()",
            f"{OPERATIONS}test_a_decision_after_the_deadline_is_told_that_it_expired",
        ),
        (
            "a question takes an answer that nobody will heed",
            "        _require_not_cancelled(task)\n",
            "",
            f"{CANCELLATION_REQUESTS}test_a_question_that_is_asked_after_the_request_takes_no_answer",
        ),
    ),
    *in_(
        "operations/workflows.py",
        (
            "a request to cancel wakes nobody, should the worker just have let go",
            '    waking.try_wake(workflow_id)\n    return "It is running',
            '    return "It is running',
            f"{WAKERS}test_whoever_requests_a_cancellation_wakes_the_workflow_that_its_worker_has_let_go_of",
        ),
        (
            "the attempt of a lost host stays open when its workflow is cancelled",
            "        _close_open_attempt(workflow_id)\n",
            "",
            f"{CANCEL}test_the_attempt_of_a_worker_that_was_lost_with_its_host_is_closed_with_it",
        ),
        (
            "a cancelled child does not tell its parent",
            "        inbox.try_notify_parent(workflow_id)\n",
            "        pass\n",
            f"{CHILDREN}test_a_cancelled_child_is_a_failed_one",
        ),
        (
            "who requests a cancellation reads the row before the questions",
            _LOCKS_THE_QUESTIONS + _READS_THE_ROW,
            _READS_THE_ROW + _LOCKS_THE_QUESTIONS,
            f"{CANCELLATION_REQUESTS}test_who_requests_it_while_somebody_else_is_cancelling_it_is_told",
        ),
        (
            "who decides does not wait for who cancels",
            "list(tasks.select_for_update(no_key=True))",
            "list(tasks)",
            f"{CANCELLATION_REQUESTS}test_who_requests_it_while_somebody_else_is_cancelling_it_is_told",
        ),
        (
            "children are cancelled although their parent was retried",
            "    inbox.withdraw_cancellation_of_children(workflow_id)\n",
            "",
            f"{CHILDREN}test_retrying_a_cancelled_parent_starts_again_what_was_cancelled_with_it",
        ),
        (
            "a request of the last run cancels the next",
            "        inbox.close_cancellations(workflow_id)\n        inbox.restore_signals(workflow_id)\n",
            "        inbox.restore_signals(workflow_id)\n",
            f"{CANCEL}test_a_request_of_the_last_run_does_not_cancel_the_next",
        ),
    ),
    *in_(
        "operations/taking_back.py",
        (
            "a call is begun after an answer by the clock",
            "    if wait.call_number is None:\n",
            "    if True:\n",
            f"{TAKING_BACK}test_an_answer_stands_once_another_call_was_begun_though_the_clock_was_set_back",
            f"{TAKING_BACK}test_an_undo_that_was_called_before_the_answer_stays_in_doubt_whatever_the_clock_said",
        ),
    ),
]

"""Signals: that they are stored, and when they no longer count."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import (
    COST_OF_WAKING,
    SIGNALS,
    SIGNALS_NOBODY_WAITS_FOR,
    WAKERS,
)

MUTANTS: list[Mutant] = [
    *in_(
        "inbox.py",
        # --- The sender's half ---
        (
            "send stores, and wakes nobody",
            "        waking.wake_for(signal_id)\n",
            "        pass\n",
            f"{WAKERS}test_whoever_sends_wakes",
        ),
        (
            "send wakes before its signal is committed",
            "    if signal_id is None:\n        return False\n    with leave_the_rest_to_the_chores():\n"
            "        waking.wake_for(signal_id)",
            "        if signal_id is None:\n            return False\n        waking.wake_for(signal_id)",
            f"{WAKERS}test_the_signal_is_committed_before_anybody_is_woken",
        ),
        (
            "a child tells its parent, and does not wake it",
            "    if inserted:\n        waking.wake(inserted[0])",
            "    if inserted:\n        pass",
            f"{SIGNALS}test_the_one_that_looks_second_sees_both",
        ),
        # --- Requests to cancel ---
        (
            "a request that was dealt with cancels the next run",
            "AND s.name = '{CANCEL}' AND s.closed_at IS NULL)",
            "AND s.name = '{CANCEL}')",
            f"{WAKERS}test_a_request_that_was_taken_back_wakes_nobody_and_cancels_nothing",
        ),
        (
            "the worker obeys a request that was dealt with",
            "AND name = 'cancel' AND closed_at IS NULL ORDER BY id LIMIT 1",
            "AND name = 'cancel' ORDER BY id LIMIT 1",
            f"{WAKERS}test_a_request_that_was_taken_back_wakes_nobody_and_cancels_nothing",
        ),
        (
            "the children of a cancelled workflow that are being undone are asked to cancel",
            'AND status = \'PENDING\' AND NOT compensating"""',
            'AND status = \'PENDING\'"""',
            f"{WAKERS}test_a_child_that_is_being_undone_is_not_asked_to_cancel",
        ),
        # --- Workflows that have ended ---
        (
            "a signal that is stored while its workflow is retried is ignored",
            "AND %(name)s <> 'cancel' FOR NO KEY UPDATE)",
            "AND %(name)s <> 'cancel')",
            f"{SIGNALS}test_a_signal_that_is_stored_while_its_workflow_is_retried_is_heeded",
        ),
        (
            "the chores put aside what a retry is to heed",
            "               FOR NO KEY UPDATE SKIP LOCKED),",
            "               ),",
            f"{SIGNALS}test_a_signal_that_the_chores_put_aside_while_its_workflow_is_retried_is_heeded",
        ),
        (
            "the chores put aside what is under way",
            "WHERE w.status <> 'PENDING' AND w.id IN (",
            "WHERE w.id IN (",
            f"{WAKERS}test_the_chores_leave_what_a_workflow_under_way_has_been_told",
        ),
        (
            "a request to cancel that came too late for a compensation is never told of",
            "OR s.name = '{CANCEL}' AND (",
            "OR false AND s.name = '{CANCEL}' AND (",
            f"{WAKERS}test_a_request_that_came_as_the_workflow_failed_by_itself_is_told_to_have_come_too_late",
        ),
        (
            "old signals of a linking id are put aside although somebody has it",
            "WHERE w.linking_id = l.linking_id AND w.status = 'PENDING')",
            "WHERE w.linking_id = l.linking_id AND false)",
            f"{SIGNALS_NOBODY_WAITS_FOR}test_one_of_a_linking_id_is_kept_as_long_as_a_workflow_that_has_it_is_under_way",
        ),
        (
            "the workflows of a linking id are read for each of its old signals",
            "(SELECT DISTINCT s.linking_id FROM workflows_signal s",
            "(SELECT s.linking_id FROM workflows_signal s",
            f"{COST_OF_WAKING}test_old_signals_of_a_linking_id_are_ignored_by_one_look_at_its_workflows",
        ),
        (
            "signals of a linking id that nobody has yet are put aside at once",
            " AND s.created_at < now() - interval '{KEPT_FOR_DAYS} days'",
            "",
            f"{SIGNALS_NOBODY_WAITS_FOR}test_one_of_a_linking_id_that_nobody_has_yet_is_kept_for_a_month",
        ),
        (
            "a retry does not heed again what was put aside",
            "SET closed_at = NULL, ignored = false",
            "SET closed_at = closed_at",
            f"{SIGNALS_NOBODY_WAITS_FOR}test_what_nobody_has_used_is_put_aside_as_the_workflow_ends_and_heeded_again_when_it_is_retried",
        ),
    ),
]

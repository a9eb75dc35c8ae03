"""Signals: who wakes a workflow, whom nobody wakes, and when they no longer count."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import (
    APPROVAL,
    CANCELLATION_REQUESTS,
    CHILDREN,
    CLAIM,
    COST_OF_WAKING,
    EXPIRY,
    SIGNAL,
    SIGNALS,
    SIGNALS_NOBODY_WAITS_FOR,
    TWO_AT_ONCE,
    WAKERS,
)

MUTANTS: list[Mutant] = [
    *in_(
        "inbox.py",
        # --- The sender's half ---
        (
            "send stores, and wakes nobody",
            "    if inserted:\n        try_wake(workflow_id=workflow_id, linking_id=linking_id)\n    return inserted",
            "    return told",
            f"{WAKERS}test_whoever_sends_wakes",
        ),
        (
            "send wakes before its signal is committed",
            "    if inserted:\n        try_wake(workflow_id=workflow_id, linking_id=linking_id)\n    return inserted",
            "        if inserted:\n            try_wake(workflow_id=workflow_id, linking_id=linking_id)\n"
            "    return inserted",
            f"{WAKERS}test_the_signal_is_committed_before_anybody_is_woken",
        ),
        (
            "a signal to a workflow wakes nobody",
            "            wake(workflow_id)\n",
            "            pass\n",
            f"{SIGNALS}test_a_signal_is_found_once_whatever_the_order_of_the_sender_and_the_suspending_worker",
        ),
        (
            "a signal by linking id wakes nobody",
            "            wake_linked(linking_id)\n",
            "            pass\n",
            f"{SIGNALS}test_a_signal_is_found_once_whatever_the_order_of_the_sender_and_the_suspending_worker",
        ),
        (
            "a failure to wake is a failure to store",
            '    except Error as error:\n        logger.warning("a signal',
            '    except ZeroDivisionError as error:\n        logger.warning("a signal',
            f"{TWO_AT_ONCE}test_a_decision_is_stored_though_the_database_fails_at_the_wake_up",
        ),
        # --- Whom it wakes ---
        (
            "waking by linking id reads all that have it",
            "w.linking_id = %s AND w.wake_on <> '{{}}' AND EXISTS",
            "w.linking_id = %s AND EXISTS",
            f"{COST_OF_WAKING}test_waking_reads_a_few_pages_however_many_of_a_linking_id_do_not_listen",
        ),
        (
            "a signal that was used wakes again",
            '_LISTENS = f"s.closed_at IS NULL AND ',
            '_LISTENS = f"',
            f"{WAKERS}test_nobody_wakes_for_a_signal_that_has_been_used",
        ),
        (
            "any signal wakes",
            "s.name = ANY (w.wake_on) AND s.payload @> w.wake_matching",
            "s.payload @> w.wake_matching",
            f"{APPROVAL}test_a_signal_for_something_else_wakes_nobody",
        ),
        (
            "a signal that the attempt has seen wakes it in a hot loop",
            ' AND NOT ({_SEEN})"',
            '"',
            f"{SIGNALS_NOBODY_WAITS_FOR}test_a_retry_is_cut_short_by_a_signal_that_its_error_names_and_its_attempt_has_not_seen",
        ),
        (
            "a signal of another cluster wakes a retry in a hot loop",
            " OR s.stored_in >= pg_snapshot_xmax(pg_current_snapshot())",
            "",
            f"{SIGNALS_NOBODY_WAITS_FOR}test_a_signal_that_came_with_a_copy_of_the_database_wakes_no_retry_in_a_hot_loop",
        ),
        (
            "a signal wakes whatever its payload",
            " AND s.payload @> w.wake_matching",
            "",
            f"{SIGNAL}test_only_a_signal_that_matches_counts_and_the_others_neither_wake_it_nor_are_used",
        ),
        (
            "a request to cancel wakes nobody",
            " OR s.closed_at IS NULL AND s.name = 'cancel' AND NOT w.compensating)",
            ")",
            f"{CANCELLATION_REQUESTS}test_the_sweep_finds_a_request_that_both_missed",
        ),
        (
            "a request to cancel wakes what is being undone, over and over",
            "AND s.name = 'cancel' AND NOT w.compensating)",
            "AND s.name = 'cancel')",
            f"{WAKERS}test_nobody_wakes_what_is_being_undone_for_a_request_to_cancel",
        ),
        (
            "a request that was obeyed wakes",
            "OR s.closed_at IS NULL AND s.name = 'cancel'",
            "OR s.name = 'cancel'",
            f"{WAKERS}test_a_request_that_was_taken_back_wakes_nobody_and_cancels_nothing",
        ),
        (
            "a signal of its linking id that has answered it wakes it again",
            "WHERE a.workflow_id = w.id AND a.signal_id = s.id)",
            "WHERE a.workflow_id = w.id AND a.signal_id = s.id AND false)",
            f"{WAKERS}test_nobody_wakes_for_a_signal_that_has_been_used",
        ),
        (
            "the worker's own look does not see its linking id",
            "     OR w.linking_id IS NOT NULL AND EXISTS (SELECT",
            "     OR false AND EXISTS (SELECT",
            f"{SIGNALS}test_a_signal_is_found_once_whatever_the_order_of_the_sender_and_the_suspending_worker",
        ),
        # --- The sweep ---
        (
            "the sweep finds nothing that is addressed",
            "({addressed} UNION ALL {linked} UNION",
            "({linked} UNION",
            f"{SIGNALS}test_a_sender_that_was_killed_between_its_two_statements_has_lost_nothing",
        ),
        (
            "the sweep finds nothing by linking id",
            "UNION ALL {linked} UNION",
            "UNION",
            f"{SIGNALS}test_a_sender_that_was_killed_between_its_two_statements_has_lost_nothing",
        ),
        (
            "the sweep finds no parent",
            " UNION ALL {joined})",
            ")",
            f"{CHILDREN}test_a_worker_that_dies_before_it_could_tell_the_parent_loses_nothing",
        ),
        (
            "the sweep reads all that have a linking id",
            'w.linking_id IS NOT NULL AND w.wake_on <> \'{{}}\'"""',
            'w.linking_id IS NOT NULL"""',
            f"{COST_OF_WAKING}test_waking_reads_a_few_pages_however_many_of_a_linking_id_do_not_listen",
        ),
        (
            "the sweep wakes a parent that waits for something else",
            " AND 'child:' || j.name = ANY (w.wake_on)",
            "",
            f"{WAKERS}test_the_sweep_wakes_no_parent_that_waits_for_something_else",
        ),
        (
            "a parent is told of children of a wait that is over",
            "j.outcome = '' AND NOT j.superseded",
            "NOT j.superseded",
            f"{WAKERS}test_a_parent_is_not_told_of_the_children_of_a_wait_that_is_over",
        ),
        (
            "a parent is told of children of a wait that was superseded",
            "AND NOT j.superseded AND NOT",
            "AND NOT",
            f"{WAKERS}test_a_parent_is_not_told_of_the_children_of_a_wait_that_is_over",
        ),
        (
            "a parent is told by each of its children",
            "AND c.parent_wait = j.name AND c.status = 'PENDING')",
            "AND c.parent_wait = j.name AND c.status = 'PENDING' AND false)",
            f"{WAKERS}test_a_parent_is_told_by_its_last_child_alone",
        ),
        (
            "a child tells its parent, and does not wake it",
            "    if inserted:\n        wake(inserted[0])",
            "    if inserted:\n        pass",
            f"{SIGNALS}test_the_one_that_looks_second_sees_both",
        ),
        (
            "what has taken too long is woken although it is being undone",
            ' AND NOT w.compensating"\n',
            '"\n',
            f"{WAKERS}test_nobody_wakes_what_is_being_undone_for_a_request_to_cancel",
        ),
        (
            "whose time is over is found by reading all that waits",
            "w.expires_at <= statement_timestamp() AND",
            "w.expires_at <= clock_timestamp() AND",
            f"{EXPIRY}test_what_has_expired_is_found_by_its_index_whatever_waits",
        ),
        (
            "what has taken too long is woken by a release that does not know it",
            'AND w.workflow_type = ANY (%s)"',
            'AND (true OR w.workflow_type = ANY (%s))"',
            f"{EXPIRY}test_one_of_a_type_that_this_release_does_not_know_is_left_for_the_next",
        ),
        # --- Requests to cancel ---
        (
            "a request that was dealt with cancels the next run",
            "AND s.name = '{CANCEL}' AND s.closed_at IS NULL\n                 LIMIT",
            "AND s.name = '{CANCEL}'\n                 LIMIT",
            f"{WAKERS}test_a_request_that_was_taken_back_wakes_nobody_and_cancels_nothing",
        ),
        (
            "a claim reads all signals for the sake of one row",
            "(SELECT true FROM workflows_signal s\n                 WHERE s.workflow_id = {workflow_id} AND"
            " s.name = '{CANCEL}' AND s.closed_at IS NULL\n                 LIMIT 1) IS NOT NULL",
            "EXISTS (SELECT FROM workflows_signal s\n                 WHERE s.workflow_id = {workflow_id} AND"
            " s.name = '{CANCEL}' AND s.closed_at IS NULL)",
            f"{CLAIM}test_a_claim_reads_a_handful_of_pages_however_many_signals_nobody_has_answered",
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
            'WHERE w.linking_id = s.linking_id AND w.status = \'PENDING\')"""',
            'WHERE w.linking_id = s.linking_id AND false)"""',
            f"{SIGNALS_NOBODY_WAITS_FOR}test_one_of_a_linking_id_is_kept_as_long_as_a_workflow_that_has_it_is_under_way",
        ),
        (
            "signals of a linking id that nobody has yet are put aside at once",
            "               AND s.created_at < now() - interval '{KEPT_FOR_DAYS} days'\n",
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

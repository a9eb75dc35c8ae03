"""Waking: which workflows a signal wakes, which it does not, and what the chores find."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import (
    APPROVAL,
    CANCELLATION_REQUESTS,
    CHORES,
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
        "waking.py",
        (
            "a failure to wake is a failure to store",
            '    except Error as error:\n        logger.warning("a signal',
            '    except ZeroDivisionError as error:\n        logger.warning("a signal',
            f"{TWO_AT_ONCE}test_a_decision_is_stored_though_the_database_fails_at_the_wake_up",
        ),
        # --- Whom it wakes ---
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
        # --- Slices of chores ---
        (
            "the chores find nothing that is addressed",
            "JOIN workflows_workflow w ON {_ADDRESSED} WHERE {_ASLEEP_OR_FRESH} LIMIT",
            "JOIN workflows_workflow w ON {_ADDRESSED} WHERE false AND {_ASLEEP_OR_FRESH} LIMIT",
            f"{SIGNALS}test_a_sender_that_was_killed_between_its_two_statements_has_lost_nothing",
        ),
        (
            "the chores leave what is due behind the backlog",
            "JOIN workflows_workflow w ON {_ADDRESSED} WHERE {_ASLEEP_OR_FRESH} LIMIT",
            "JOIN workflows_workflow w ON {_ADDRESSED} WHERE {_ASLEEP} LIMIT",
            f"{WAKERS}test_what_is_due_already_goes_before_the_backlog_when_it_is_woken_and_stays_due_since_then",
        ),
        (
            "the chores find nothing by linking id",
            "WHERE {_ASLEEP} AND {_LISTENING}\n                AND EXISTS",
            "WHERE false AND {_ASLEEP} AND {_LISTENING}\n                AND EXISTS",
            f"{SIGNALS}test_a_sender_that_was_killed_between_its_two_statements_has_lost_nothing",
        ),
        (
            "whoever has a linking id is read, though most do not listen",
            """_LISTENING = "w.linking_id IS NOT NULL AND w.wake_on <> '{}'\"""",
            '_LISTENING = "w.linking_id IS NOT NULL"',
            f"{COST_OF_WAKING}test_waking_reads_a_few_pages_however_many_of_a_linking_id_do_not_listen",
        ),
        (
            "a workflow that many signals are for fills a slice",
            "(SELECT DISTINCT linking_id FROM s) l",
            "(SELECT linking_id FROM s) l",
            f"{CHORES}test_a_slice_wakes_so_many_of_a_linking_id_and_the_next_goes_on",
        ),
        (
            "a full slice is not looked at again",
            "    if woken >= ROWS:\n",
            "    if woken < 0:\n",
            f"{CHORES}test_a_slice_wakes_so_many_of_a_linking_id_and_the_next_goes_on",
        ),
        (
            "one slice of signals is all there is",
            "0 if are_all else ids[-1]",
            "0",
            f"{CHORES}test_the_signals_of_all_slices_wake",
            f"{CHORES}test_a_slice_compares_so_many_workflows_with_so_many_signals_of_their_linking_id",
        ),
        (
            "a slice has no end when its signals are as many as it may have",
            "count(*) < {SIGNALS} AND count(*) FILTER",
            "count(*) FILTER",
            f"{CHORES}test_the_signals_of_all_slices_wake",
        ),
        (
            "what a slice has left out is left out for good",
            "count(*) < {SIGNALS} AND count(*) FILTER (WHERE NOT is_in_slice) = 0",
            "count(*) < {SIGNALS}",
            f"{CHORES}test_a_slice_compares_so_many_workflows_with_so_many_signals_of_their_linking_id",
        ),
        (
            "a slice compares all signals of a linking id with all that listen for it",
            "0) < {PAIRS} AS is_in_slice",
            "0) < {PAIRS} OR true AS is_in_slice",
            f"{CHORES}test_a_slice_compares_so_many_workflows_with_so_many_signals_of_their_linking_id",
        ),
        (
            "the newest signals are the oldest",
            'order="id DESC"',
            'order="id"',
            f"{CHORES}test_a_slice_compares_so_many_workflows_with_so_many_signals_of_their_linking_id",
        ),
        (
            "a long payload is unpacked for each workflow that it is compared with",
            "payload || '{{}}' AS payload",
            "payload",
            f"{COST_OF_WAKING}test_a_long_payload_is_read_once_however_many_wait",
        ),
        (
            "one slice of what came too late is all there is",
            "last if count == SIGNALS else 0",
            "0",
            f"{CHORES}test_what_came_too_late_is_put_aside_slice_by_slice",
        ),
        (
            "what has taken too long is woken although it is being undone",
            "AND NOT w.compensating AND {_ASLEEP}\n",
            "AND {_ASLEEP}\n",
            f"{WAKERS}test_nobody_wakes_what_is_being_undone_for_a_request_to_cancel",
        ),
        (
            "what has taken too long is woken by a release that does not know it",
            "AND w.workflow_type = ANY (%(types)s)",
            "AND (true OR w.workflow_type = ANY (%(types)s))",
            f"{EXPIRY}test_one_of_a_type_that_this_release_does_not_know_is_left_for_the_next",
        ),
        (
            "all that have expired are woken at once",
            "AND w.workflow_type = ANY (%(types)s)\n         LIMIT %(rows)s)",
            "AND w.workflow_type = ANY (%(types)s) AND %(rows)s > 0)",
            f"{CHORES}test_the_expired_are_woken_so_many_at_a_time",
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
            "whose time is over is found by reading all that waits",
            "w.expires_at <= statement_timestamp() AND",
            "w.expires_at <= clock_timestamp() AND",
            f"{EXPIRY}test_what_has_expired_is_found_by_its_index_whatever_waits",
        ),
    ),
]

"""What never escalated: unknown types, what is lost again and again, what a step leaves behind, wrong clocks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import (
    BEGUN_CALLS,
    DEATHS,
    HOME,
    LEFTOVERS,
    LOSSES,
    POISON,
    STALLS,
    TOPICS,
    UNDO_ORDER,
    UNKNOWN_TYPES,
    UNSETTLED,
)

MUTANTS: list[Mutant] = [
    *in_(
        "worker/unknown_types.py",
        (
            "an attempt whose worker is gone stays open when its type is unknown",
            "        execute(f\"{journal.closing_as_vanished('true')} SELECT FROM vanished\","
            ' {"workflow_id": workflow.pk})\n',
            "",
            f"{UNKNOWN_TYPES}test_an_attempt_that_has_lost_its_worker_is_closed_all_the_same",
        ),
        (
            "an unknown type is looked at once a minute for ever",
            "            waited = _seconds_since(workflow.pk, reason)\n",
            "            pass\n",
            f"{UNKNOWN_TYPES}test_it_is_put_off_for_as_long_as_it_waits_already_from_a_minute_to_an_hour",
        ),
        (
            "an unknown type is put off without end",
            "min(max(waited, FIRST_DELAY), MAX_DELAY)",
            "max(waited, FIRST_DELAY)",
            f"{UNKNOWN_TYPES}test_it_is_put_off_for_as_long_as_it_waits_already_from_a_minute_to_an_hour",
        ),
        (
            "the wait is counted from the first time that the type was unknown",
            "- max(at)), 0)",
            "- min(at)), 0)",
            f"{UNKNOWN_TYPES}test_put_off_again_after_it_was_known_it_is_told_again_and_begins_with_a_minute",
        ),
        (
            "one slice of what is known again is made due",
            "while not made or made[-1] == SLICE:",
            "while not made:",
            f"{UNKNOWN_TYPES}test_in_slices_however_many_there_are",
        ),
    ),
    *in_(
        "transitions.py",
        (
            "a worker that knows a type wakes what waits for something else",
            " AND waiting_for = '{A_RELEASE_THAT_KNOWS}' || workflow_type",
            "",
            f"{UNKNOWN_TYPES}test_it_leaves_alone_what_waits_for_something_else",
        ),
        (
            "what waits for a release is found by reading all that waits",
            " AND waiting_for LIKE '{A_RELEASE_THAT_KNOWS}%%'",
            "",
            f"{UNKNOWN_TYPES}test_it_finds_them_by_their_index_among_many_that_wait",
        ),
        (
            "a worker that knows a type wakes the rows of other queues",
            "                   AND queue = %s\n                 LIMIT",
            "                   AND (queue = %s OR true)\n                 LIMIT",
            f"{UNKNOWN_TYPES}test_it_leaves_alone_what_waits_for_something_else",
        ),
    ),
    *in_(
        "worker/loop.py",
        (
            "a worker that knows a type does not make it due as it starts",
            "                    self._make_due_for_this_release()\n",
            "                    pass\n",
            f"{UNKNOWN_TYPES}test_a_worker_that_knows_the_type_makes_it_due_as_it_starts",
        ),
        (
            "the time that an INTENT takes is the step's",
            "if now > self._status.since + LONG_FOR_THE_DATABASE:",
            "if False:",
            f"{BEGUN_CALLS}test_the_seconds_in_which_its_intent_was_written_are_not_the_steps",
        ),
    ),
    *in_(
        "executor.py",
        (
            "a step's role outlives it",
            "RESET SESSION AUTHORIZATION; RESET ROLE; ",
            "",
            f"{LEFTOVERS}test_a_step_that_becomes_another_role_does_not_keep_the_decision_from_being_written",
        ),
        (
            "a cursor that a step holds outlives it",
            "CLOSE ALL; ",
            "",
            f"{LEFTOVERS}test_a_cursor_that_outlives_its_transaction_is_gone_for_the_next_workflow",
            f"{LEFTOVERS}test_a_cursor_whose_query_fails_at_the_commit_does_not_keep_the_decision_from_being_written",
        ),
        (
            "what a hook has told its session is not told again",
            "            cursor.execute(_RESET + session_settings.again_sql(claim))\n        session_of",
            "            cursor.execute(_RESET)\n        session_of",
            f"{LEFTOVERS}test_after_a_hook_a_session_that_was_told_something_is_told_it_again",
        ),
        (
            "a hook leaves its session in a transaction",
            "if not claim.autocommit or claim.connection.info.transaction_status != TransactionStatus.IDLE:",
            "if False:",
            f"{LEFTOVERS}test_a_hook_leaves_nothing_for_the_next_workflow",
        ),
        (
            "a step's temporary table outlives it",
            "DISCARD TEMP; ",
            "",
            f"{LEFTOVERS}test_a_temporary_table_is_gone_for_the_next_workflow",
        ),
        (
            "a worker goes on listening",
            "UNLISTEN *; ",
            "",
            f"{LEFTOVERS}test_nothing_is_listened_to_any_more",
        ),
        (
            "a lock of the session outlives a failed attempt",
            "    if rolled_back:\n        let_go()\n",
            "",
            f"{LEFTOVERS}test_a_lock_of_the_session_and_a_prepared_statement_are_let_go_of_whatever_came_of_it",
            f"{LEFTOVERS}test_an_undo_leaves_nothing_either",
        ),
        (
            "a step's prepared statement outlives it",
            "DEALLOCATE ALL; ",
            "",
            f"{LEFTOVERS}test_a_lock_of_the_session_and_a_prepared_statement_are_let_go_of_whatever_came_of_it",
        ),
    ),
    *in_(
        "compensation.py",
    ),
    *in_(
        "poison.py",
        (
            "workers lose a workflow in turns, and none puts it off",
            "    if postponed := _postponed_as_lost(attempt):\n        return postponed\n",
            "",
            f"{LOSSES}test_what_is_lost_twice_is_put_off_though_another_worker_was_quicker_than_the_one_that_lost_it",
        ),
        (
            "workers lose an undo in turns, and none puts it off",
            "    if attempt.past and (postponed := _postponed_as_lost(attempt)):\n        return postponed\n",
            "",
            f"{LOSSES}test_the_undo_that_another_worker_has_just_lost_is_put_off_as_well",
        ),
        (
            "what was put off after a loss is put off once more",
            "not last.still_due or ",
            "",
            f"{LOSSES}test_it_is_put_off_once_for_each_loss_and_not_for_the_first",
        ),
        (
            "a worker believes that what is still open was not lost",
            "not in (Attempt.Outcome.LOST, Attempt.Outcome.VANISHED):",
            "!= Attempt.Outcome.LOST:",
            f"{LOSSES}test_what_is_lost_twice_is_put_off_though_another_worker_was_quicker_than_the_one_that_lost_it",
        ),
        (
            "a bad hour of the database asks about each of its workflows",
            "if ten and _others_were_decided(attempt, between=(ten[-1].number, ten[0].number)) else []",
            "if ten else []",
            f"{LOSSES}test_a_bad_hour_asks_nobody_and_what_it_lost_is_tried_again_after_it",
        ),
        (
            "losses at several steps ask",
            "takewhile(lambda past: past.died_in == lost[0].died_in, lost)",
            "lost",
            f"{LOSSES}test_nine_are_not_enough_nor_ten_at_two_steps",
        ),
        (
            "what was decided before the first loss counts",
            "WHERE id > (SELECT",
            "WHERE 0 < (SELECT",
            f"{LOSSES}test_a_decision_before_the_first_loss_or_after_the_last_says_nothing",
        ),
        (
            "what was decided after the last loss counts",
            "AND id < (SELECT",
            "AND 0 < (SELECT",
            f"{LOSSES}test_a_decision_before_the_first_loss_or_after_the_last_says_nothing",
        ),
        (
            "what others have lost counts as decided",
            " AND outcome = ANY (%(decided)s))",
            " AND (outcome = ANY (%(decided)s) OR true))",
            f"{LOSSES}test_what_others_have_not_decided_says_nothing",
        ),
    ),
    *in_(
        "decisions.py",
        (
            "that it is too early to tell counts as a failure",
            "(workflow.retry_count if again else 0) + is_failure",
            "(workflow.retry_count if again else 0) + 1",
            f"{UNSETTLED}test_a_step_whose_calls_time_out_makes_as_many_as_its_policy_says",
        ),
        (
            "a call that has not failed yet waits half as long as it may take",
            "policy.due_after(max(failures.number, 1))",
            "policy.due_after(failures.number)",
            f"{UNSETTLED}test_one_whose_worker_died_in_the_call_has_not_failed_yet_and_waits_as_long_as_the_call_may_take",
        ),
    ),
    *in_(
        "inbox.py",
        (
            "a message of a topic that was created again is a duplicate",
            "AND coalesce(sent_at_ms, %(sent_at_ms)s::bigint) IS NOT DISTINCT FROM %(sent_at_ms)s::bigint",
            "AND (coalesce(sent_at_ms, %(sent_at_ms)s::bigint) IS NOT DISTINCT FROM %(sent_at_ms)s::bigint OR true)",
            f"{TOPICS}test_its_messages_are_no_duplicates_of_those_before",
        ),
        (
            "what a release before has stored is delivered again",
            "AND coalesce(sent_at_ms, %(sent_at_ms)s::bigint) IS",
            "AND sent_at_ms IS",
            f"{TOPICS}test_what_a_release_before_has_stored_is_not_delivered_again",
        ),
    ),
    *in_(
        "overview.py",
        (
            "what was put off counts as hidden by the clock",
            "WHERE invisible_until <= created_at",
            "WHERE true",
            f"{HOME}test_home_says_nothing_of_what_is_due_or_was_put_off",
        ),
    ),
    *in_(
        "effect_rows.py",
        (
            "a call that is begun again keeps its place among the others",
            "           call_number = excluded.call_number,\n",
            "",
            f"{UNDO_ORDER}test_a_call_that_was_begun_again_counts_from_then",
        ),
        (
            "calls are undone by the clock",
            "(effect.call_number, -effect.call_age, effect.id)",
            "(-effect.call_age, effect.id)",
            f"{UNDO_ORDER}test_a_clock_that_was_set_back_between_two_calls_changes_no_order",
        ),
    ),
    *in_(
        "journal.py",
        (
            "deaths before a person's retry count",
            "                 WHERE is_before), 0)",
            "                 WHERE is_before AND false), 0)",
            f"{POISON}test_one_that_is_cancelled_and_retried_has_all_its_lives_too",
        ),
        (
            "deaths since a person's retry do not count",
            "                 WHERE is_before), 0)",
            "                 WHERE is_before OR true), 0)",
            f"{POISON}test_that_the_history_tells_of_a_death_hides_none",
        ),
    ),
    *in_(
        "worker/exits.py",
        (
            "a death that could not be written is written although nobody was killed",
            "            self._unwritten.remove(death)\n",
            "",
            f"{DEATHS}test_a_death_that_the_supervisor_would_cause_is_written_now_or_forgotten",
        ),
    ),
    *in_(
        "worker/supervisor.py",
        (
            "workers are killed as overdue while the database is silent",
            "if written and child.slot.read() == status:",
            "if child.slot.read() == status:",
            f"{STALLS}test_while_the_database_is_silent_no_worker_is_killed_as_overdue",
        ),
    ),
]

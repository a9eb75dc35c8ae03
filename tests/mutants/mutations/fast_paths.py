"""What makes a workflow cheap, and must leave nothing out for it: prepared statements, fewer trips, quick checks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import (
    EFFECT_ROWS,
    JSONB,
    LEFTOVERS,
    LOST_CLAIMS,
    ON_RECORD,
    RETRIES,
    ROUND_TRIPS,
    SESSIONS,
    TIMEOUTS,
)

MUTANTS: list[Mutant] = [
    *in_(
        "executor.py",
        (
            "a session that steps have used is not reset",
            "    if not session_of().is_used:\n",
            "    if True:\n",
            f"{LEFTOVERS}test_a_temporary_table_is_gone_for_the_next_workflow",
        ),
        (
            "what the reset has dropped counts as prepared",
            "again_sql(connection))\n    session_of().forget_prepared()\n",
            "again_sql(connection))\n",
            f"{LEFTOVERS}test_a_temporary_table_is_gone_for_the_next_workflow",
        ),
        (
            "what a failed attempt has dropped counts as prepared",
            "        cursor.execute(_LET_GO)\n    session_of().forget_prepared()\n",
            "        cursor.execute(_LET_GO)\n",
            f"{RETRIES}test_it_waits_longer_after_each_failure_of_the_same_step",
        ),
        (
            "what was dropped after a hook counts as prepared",
            "        session_of().forget_prepared()\n",
            "",
            f"{LEFTOVERS}test_after_a_hook_the_next_workflow_is_claimed_although_what_was_prepared_is_gone",
        ),
    ),
    *in_(
        "timeouts.py",
        (
            "a timer's signal that comes late ends the worker",
            "if _seconds is not None and not _held_off:",
            "if not _held_off:",
            f"{TIMEOUTS}test_a_signal_that_comes_late_is_nobodys",
        ),
        (
            "a step that takes the timer's signal for itself ends the time limits of the others",
            "    if getsignal(signal.SIGALRM) is not _expire:\n",
            "    if getsignal(signal.SIGALRM) is signal.SIG_DFL:\n",
            f"{TIMEOUTS}test_a_step_that_takes_the_signal_for_itself_takes_it_for_no_other",
        ),
    ),
    *in_(
        "postgres/jsonb.py",
        (
            "what has a NUL in it is taken for plain",
            'b"\\\\u", b"NaN"',
            'b"NaN"',
            f"{JSONB}test_a_result_that_cannot_be_kept_is_refused",
        ),
        (
            "what is deep is taken for plain",
            "len(text) > MAX_DIGITS or is_deep or any(",
            "len(text) > MAX_DIGITS or any(",
            f"{JSONB}test_a_result_that_cannot_be_kept_is_refused",
        ),
        (
            "a number that is too long is taken for plain",
            "len(text) > MAX_DIGITS or is_deep",
            "is_deep",
            f"{JSONB}test_a_result_that_cannot_be_kept_is_refused",
        ),
        (
            "what is no number is taken for plain",
            ', b"NaN", b"Infinity")',
            ",)",
            f"{JSONB}test_a_result_that_cannot_be_kept_is_refused",
        ),
    ),
    *in_(
        "postgres/deadlines.py",
        (
            "a query with a deadline passes by the session's ears",
            "waits, of_the_session = raw.wait,",
            "waits, of_the_session = type(raw).wait.__get__(raw),",
            f"{ROUND_TRIPS}test_a_query_with_a_deadline_in_a_step_is_rolled_back_with_it_and_so_is_what_follows",
        ),
        (
            "after a query with a deadline the session hears no more",
            "        if of_the_session:\n",
            "        if False:\n",
            f"{ROUND_TRIPS}test_a_query_with_a_deadline_in_a_step_is_rolled_back_with_it_and_so_is_what_follows",
        ),
        (
            "a connection keeps the wait of a query with a deadline",
            "            del raw.wait\n",
            "            pass\n",
            f"{ROUND_TRIPS}test_a_query_with_a_deadline_leaves_a_connection_of_nobodys_as_it_was",
        ),
    ),
    *in_(
        "postgres/round_trips.py",
        (
            "what an exchange that failed has prepared is kept for ever",
            "[_DROP_PREPARED] if self._is_unsure else []",
            "[]",
            f"{ROUND_TRIPS}test_what_fails_again_and_again_leaves_nothing_prepared_behind",
        ),
        (
            "once an exchange has failed nothing stays prepared",
            "            self._is_unsure = False\n            return",
            "            return",
            f"{ROUND_TRIPS}test_what_fails_again_and_again_leaves_nothing_prepared_behind",
        ),
        (
            "what a step sends comes before its savepoint",
            "        self._make_savepoint()\n        return",
            "        return",
            f"{ROUND_TRIPS}test_whatever_is_sent_comes_after_the_savepoint",
        ),
        (
            "what a step sends is not seen",
            "        self.is_used = True\n        if self._raw",
            "        if self._raw",
            f"{ROUND_TRIPS}test_whatever_is_sent_comes_after_the_savepoint",
            f"{LEFTOVERS}test_a_temporary_table_is_gone_for_the_next_workflow",
        ),
        (
            "Django does not know of the savepoint",
            "            self._wrapper.savepoint_ids[-1] = name  #",
            "            #",
            f"{ROUND_TRIPS}test_whatever_is_sent_comes_after_the_savepoint",
        ),
        (
            "a savepoint that was not made is released",
            '                self._savepoint, self._wrapper.savepoint_ids[-1] = "", None  #',
            "                pass  #",
            f"{ROUND_TRIPS}test_where_nothing_is_sent_there_is_no_savepoint",
        ),
        (
            "a transaction that has ended, or failed, counts as committed",
            "        if self._raw.pgconn.transaction_status != TransactionStatus.INTRANS:\n",
            "        if False:\n",
            f"{ROUND_TRIPS}test_a_transaction_that_has_ended_or_failed_meanwhile_is_not_committed",
        ),
        (
            "a decision that was rolled back is committed with the next one",
            "            self._last = None  #",
            "            pass  #",
            f"{ROUND_TRIPS}test_what_goes_with_a_commit_goes_with_no_other",
        ),
        (
            "an answer that was never read is taken for the next one",
            "        if pgconn.pipeline_status != PipelineStatus.OFF:",
            "        if False:",
            f"{ROUND_TRIPS}test_an_answer_that_was_never_read_is_not_taken_for_the_next_one",
        ),
        (
            "a transaction that is to be rolled back is committed",
            "        if self._wrapper.needs_rollback or self._wrapper.closed_in_transaction:\n            return",
            "        if self._wrapper.closed_in_transaction:\n            return",
            f"{ROUND_TRIPS}test_what_goes_with_the_commit_is_not_sent_if_the_transaction_is_rolled_back",
        ),
        (
            "a plan is kept for ever",
            "known is None or now >= known.until",
            "known is None",
            f"{ROUND_TRIPS}test_a_statement_is_prepared_and_anew_after_a_minute",
        ),
        (
            "what psycopg drops with a rollback counts as prepared",
            "        self._raw.prepare_threshold = None  #",
            "        #",
            f"{ROUND_TRIPS}test_a_rollback_drops_nothing_that_is_prepared",
        ),
        (
            "plans pile up",
            "            if known:\n                pgconn",
            "            if False:\n                pgconn",
            f"{ROUND_TRIPS}test_a_statement_is_prepared_and_anew_after_a_minute",
        ),
        (
            "a plan that takes long is kept as long as one that does not",
            "        if monotonic() > began + SLOW:",
            "        if False:",
            f"{ROUND_TRIPS}test_what_takes_long_is_prepared_anew_a_second_later",
        ),
    ),
    *in_(
        "decisions.py",
        (
            "a row that is gone is complete",
            "1 / ((SELECT count(*) FROM completed) * (SELECT",
            "1 / ((SELECT",
            f"{SESSIONS}test_a_row_that_is_gone_is_not_decided",
        ),
        (
            "a workflow is complete whose attempt is not to be seen",
            "1 / ((SELECT count(*) FROM completed) * (SELECT count(*) FROM closed))",
            "1 / (SELECT count(*) FROM completed)",
            f"{LOST_CLAIMS}test_nothing_is_decided_while_the_attempt_is_not_to_be_seen",
        ),
        (
            "a complete workflow forgets the steps that ran",
            "steps_in_short = %(steps_in_short)s, steps =",
            "steps =",
            f"{ON_RECORD}test_a_complete_workflow_tells_what_each_step_did",
        ),
    ),
    *in_(
        "history.py",
        (
            "an attempt that is retried forgets the steps that ran",
            "        steps_in_short=steps.in_short,\n",
            "",
            f"{ON_RECORD}test_an_attempt_that_is_retried_tells_what_ran_before_the_failure",
        ),
    ),
    *in_(
        "journal.py",
        (
            "a lost attempt forgets the steps that ran",
            "steps_in_short = %(steps_in_short)s, steps =",
            "steps =",
            f"{ON_RECORD}test_a_lost_attempt_tells_what_ran_before_the_loss",
        ),
    ),
    *in_(
        "models/steps_on_record.py",
        (
            "a step with more to tell is a word",
            "if nameable and len(step) == 3 and",
            "if nameable and",
            f"{ON_RECORD}test_what_is_recorded_is_what_is_told",
        ),
        (
            "a text that names a step too many takes the page down",
            "except (ValueError, StopIteration):",
            "except ValueError:",
            f"{ON_RECORD}test_of_a_text_that_cannot_be_read_what_is_told_in_full_is_told",
        ),
        (
            "a text with a word of a later release takes the page down",
            "except (ValueError, StopIteration):",
            "except StopIteration:",
            f"{ON_RECORD}test_of_a_text_that_cannot_be_read_what_is_told_in_full_is_told",
        ),
        (
            "what waits is a word, which a console of the release before does not read",
            '"skipped": " skipped"}',
            '"skipped": " skipped", "waiting": " waiting"}',
            f"{ON_RECORD}test_a_console_of_the_release_before_sees_what_failed_or_waits",
        ),
        (
            "a step whose name has a space in it is a word",
            '" " not in name and "," not in name',
            '"," not in name',
            f"{ON_RECORD}test_what_is_recorded_is_what_is_told",
        ),
        (
            "a step whose name has a comma in it is a word",
            '" " not in name and "," not in name',
            '" " not in name',
            f"{ON_RECORD}test_what_is_recorded_is_what_is_told",
        ),
        (
            "an attempt of the release before tells nothing",
            "return [*steps, *told_in_full]",
            "return steps",
            f"{ON_RECORD}test_an_attempt_of_the_release_before_is_read_as_it_was_written",
        ),
    ),
    *in_(
        "effect_rows.py",
        (
            "an undo is called without its key where the row leaves that out",
            "key or key_of(workflow, step, generation)",
            "key",
            f"{EFFECT_ROWS}test_a_lookup_and_an_undo_are_given_the_key_also_where_the_row_leaves_it_out",
        ),
        (
            "a call of a later generation has the key of the first where the row leaves it out",
            "key or key_of(workflow, step, generation)",
            "key or key_of(workflow, step, 1)",
            f"{EFFECT_ROWS}test_a_later_generation_is_undone_under_its_own_key_also_where_the_row_leaves_it_out",
        ),
        (
            "that a call was begun meanwhile is left to the unique key",
            "              AND undo = %(undo)s)\n",
            "              AND undo = %(undo)s AND false)\n",
            f"{EFFECT_ROWS}test_a_call_that_was_begun_after_the_ledger_was_read_is_not_begun_again",
        ),
    ),
]

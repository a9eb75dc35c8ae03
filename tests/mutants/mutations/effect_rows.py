"""The rows of effects: their states, their fence, and what was read of them before."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_, unfenced
from tests.mutants.mutations.seen_by import (
    CANCELLATION_REQUESTS,
    EFFECT_ROWS,
    EFFECTS,
    FOLLOW_UPS,
    LATE,
    LEDGER,
    REMOVED_STEPS,
    UNDO,
    UNDO_IN_DOUBT,
)

MUTANTS: list[Mutant] = [
    *in_(
        "effect_rows.py",
        # --- The fence ---
        unfenced(
            "fence: beginning a call, or an undo",
            "{FENCE} AND (%(heedless)s OR NOT",
            f"{LATE}test_it_begins_no_call",
            f"{LATE}test_it_begins_no_undo",
        ),
        unfenced(
            "fence: deciding on a call in doubt",
            "state = %(expected)s AND {FENCE}",
            f"{LATE}test_it_decides_on_no_call_in_doubt",
        ),
        unfenced(
            "fence: counting the failures of an undo",
            "WHERE id = %(effect_id)s AND {FENCE} RETURNING id",
            f"{LATE}test_it_counts_no_failure_of_an_undo",
        ),
        # --- The states ---
        (
            "a call that two workers begin at once is told as a defect",
            'if not sqlstates.violates(lost, "effect_unique_call"):',
            "if True:",
            f"{EFFECT_ROWS}test_a_call_that_is_being_begun_just_then_is_not_begun_again"
            "_and_the_result_before_it_is_written",
        ),
        (
            "a decision does not look at what has been told since",
            "WHERE id = %(effect_id)s AND state = %(expected)s AND",
            "WHERE id = %(effect_id)s AND (state = %(expected)s OR true) AND",
            f"{UNDO_IN_DOUBT}test_a_result_that_comes_while_it_is_looked_up_is_the_truth",
        ),
        (
            "a late result overwrites that of a later attempt",
            "WHERE id = %(effect_id)s AND attempt_token = %(attempt_token)s",
            "WHERE id = %(effect_id)s AND (attempt_token = %(attempt_token)s OR true)",
            f"{LEDGER}test_a_late_result_does_not_overwrite_what_a_later_attempt_took_over_or_decided",
        ),
        (
            "a late result overwrites what a lookup has found",
            "attempt = %(attempt)s, attempt_token = %(attempt_token)s\n     WHERE id = %(effect_id)s AND state",
            "attempt = %(attempt)s\n     WHERE id = %(effect_id)s AND state",
            f"{LEDGER}test_a_late_result_does_not_overwrite_what_a_later_attempt_took_over_or_decided",
        ),
        (
            "a late result lands on the effect that was given its id since",
            """attempt_token = %(attempt_token)s\"\"\",  # noqa: S608 (ours)
        {
            "effect_id": effect.id,
            "attempt_token": attempt.token,""",
            """attempt = %(attempt)s\"\"\",  # noqa: S608 (ours)
        {
            "effect_id": effect.id,
            "attempt": attempt.id,""",
            f"{EFFECT_ROWS}test_a_late_result_never_lands_on_the_effect_of_another_workflow",
        ),
        (
            "a late undo overwrites that of a later attempt",
            "WHERE u.id = %(undo_id)s AND u.attempt_token = %(attempt_token)s)",
            "WHERE u.id = %(undo_id)s)",
            f"{EFFECTS}test_a_late_undo_does_not_overwrite_what_a_later_attempt_took_over",
        ),
        (
            "a call is begun although somebody wants the workflow cancelled",
            "AND (%(heedless)s OR NOT {inbox",
            "AND (true OR %(heedless)s OR NOT {inbox",
            f"{CANCELLATION_REQUESTS}test_one_that_is_running_ends_before_its_next_call",
        ),
        (
            "an undo is not begun because somebody wants the workflow cancelled",
            'intent["heedless"] = undo or self._is_complete',
            'intent["heedless"] = self._is_complete',
            f"{EFFECTS}test_a_request_to_cancel_does_not_keep_an_undo_from_being_called",
        ),
        (
            "a follow-up is given up because somebody wanted the workflow cancelled, too late",
            'intent["heedless"] = undo or self._is_complete',
            'intent["heedless"] = undo',
            f"{FOLLOW_UPS}test_a_request_to_cancel_that_came_too_late_does_not_end_it",
        ),
        (
            "a key's time runs from when the step did not apply",
            "WHEN 'skipped' THEN clock_timestamp()",
            "WHEN 'nothing' THEN clock_timestamp()",
            f"{EFFECTS}test_a_keys_time_does_not_run_before_the_step_applies",
        ),
        (
            "a key's time runs anew from each call",
            "ELSE e.first_begun_at END",
            "ELSE clock_timestamp() END",
            f"{EFFECTS}test_a_keys_time_runs_from_its_first_call",
        ),
        (
            "a call that is begun again is still as old as the first one",
            "begun_at = clock_timestamp(),\n           has_undo",
            "begun_at = e.begun_at,\n           has_undo",
            f"{EFFECTS}test_a_call_that_is_repeated_may_be_on_its_way_as_long_as_the_first_one",
        ),
        (
            "a call in doubt that a release without its undo repeats is not undone",
            "has_undo = excluded.has_undo OR (e.has_undo AND e.state IN ('intent', 'unknown'))",
            "has_undo = excluded.has_undo",
            f"{UNDO_IN_DOUBT}test_a_call_in_doubt_that_another_release_repeats_keeps_its_undo",
        ),
        (
            "a call that had not happened is undone as the release before would have",
            "(e.has_undo AND e.state IN ('intent', 'unknown'))",
            "e.has_undo",
            f"{EFFECTS}test_a_call_that_had_not_happened_is_undone_as_this_release_says",
        ),
        (
            "of two generations the older one is known",
            "AND NOT undo ORDER BY generation",
            "AND NOT undo",
            f"{EFFECTS}test_the_latest_generation_counts_wherever_its_row_lies",
        ),
        (
            "an undo's effect is taken for its step's",
            "WHERE workflow_id = %s AND NOT undo ORDER",
            "WHERE workflow_id = %s ORDER",
            f"{UNDO}test_what_is_undone_is_not_undone_again",
            f"{UNDO}test_a_retry_does_it_again_under_new_keys_and_undoes_that_too",
        ),
        # --- What was read ---
        (
            "an INTENT replaces the result that was told since the ledger was read",
            " WHERE e.state = %(expected)s\n",
            " WHERE e.state = %(expected)s OR e.state = 'done'\n",
            f"{EFFECT_ROWS}test_a_result_that_is_told_after_the_ledger_was_read_is_not_overwritten",
        ),
        (
            "the database refuses an INTENT that was written since the ledger was read, and the engine does not see it",
            "            WHERE workflow_id = %(workflow_id)s AND step = %(step)s::varchar AND generation",
            "            WHERE false AND workflow_id = %(workflow_id)s AND step = %(step)s::varchar AND generation",
            f"{EFFECT_ROWS}test_a_call_that_was_begun_after_the_ledger_was_read_is_not_begun_again",
            f"{EFFECT_ROWS}test_an_undo_that_was_begun_after_its_state_was_read_is_not_begun_again",
        ),
        (
            "an undo is begun although it was told since the ledger was read",
            "        if rows == [(DONE,)]:",
            "        if False:",
            f"{EFFECT_ROWS}test_an_undo_that_was_told_after_the_ledger_was_read_is_not_begun_again",
        ),
        (
            "an attempt that repeats a call does not take the effect over",
            "attempt_token = excluded.attempt_token,",
            "attempt_token = e.attempt_token,",
            f"{LEDGER}test_a_late_result_does_not_overwrite_what_a_later_attempt_took_over_or_decided",
        ),
        (
            "a call is begun although its INTENT was long on its way to the disk",
            "            if monotonic() < sent_at + MAX_INTENT_SECONDS:",
            "            if True:",
            f"{EFFECT_ROWS}test_an_intent_that_was_long_on_its_way_to_the_disk_is_written_again_before_the_call",
        ),
        (
            "of two names the older one counts, whatever has happened",
            "key=lambda effect: (effect.state != DONE, effect.state not in IN_DOUBT), default",
            "key=lambda effect: 0, default",
            f"{REMOVED_STEPS}test_of_a_step_that_says_its_names_too_late_what_has_happened_counts",
        ),
        (
            "of two names what did not happen counts before a doubt",
            "(effect.state != DONE, effect.state not in IN_DOUBT), default",
            "effect.state != DONE, default",
            f"{REMOVED_STEPS}test_of_a_step_that_says_its_names_too_late_a_doubt_counts_before_what_did_not_happen",
        ),
        # --- The order ---
        (
            "effects are undone in the order of their rows",
            "key=lambda effect: (effect.call_number, -effect.call_age, effect.id)",
            "key=lambda effect: effect.id",
            f"{UNDO_IN_DOUBT}test_what_was_in_doubt_before_a_retry_is_undone_in_its_turn_too",
        ),
        (
            "a failure of an undo is counted before it is written",
            "        journal.flush(self.attempt)\n        self._fenced(\n",
            "        self._fenced(\n",
            f"{EFFECTS}test_what_came_of_an_undo_is_written_before_its_failure_is_counted",
        ),
    ),
]

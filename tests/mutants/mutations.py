"""The list of mutants: what is taken away, from where, and the tests that should see it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.mutants.mutant import Mutant

# why, old text, new text, and the tests: from the folder tests/ on.
Line = tuple[str, ...]

LATE = "concurrency/test_late_writers.py::"
IN_FLIGHT = "concurrency/test_waits.py::"
SIGNALS = "concurrency/test_signals.py::"
WAKING = "concurrency/test_waking.py::"
CLAIM = "concurrency/test_claim.py::"
WAKERS = "workflows/test_wakers.py::"
PACE = "workflows/worker/test_pace.py::"
SESSIONS = "workflows/worker/test_session_settings.py::"
LEDGER = "workflows/test_ledger.py::"
TRANSITIONS = "workflows/test_transitions.py::"
REDACTION = "workflows/test_redaction.py::"
DOUBTS = "workflows/test_doubts.py::"
EFFECT_ROWS = "workflows/test_effect_rows.py::"
REMOVED_STEPS = "workflows/test_removed_steps.py::"
EFFECTS = "workflows/test_effects.py::"
JOURNAL = "workflows/test_journal.py::"
UNDO = "workflows/test_compensation.py::"
CANCEL = "workflows/test_cancellation.py::"
OPERATIONS = "workflows/operations/test_operations.py::"
DEATHS = "workflows/worker/test_exits.py::"
POISON = "workflows/test_poison.py::"
FAULTS = "workflows/test_faults.py::"
STAMPS = "workflows/worker/test_slots.py::"
LEASE = "workflows/worker/test_lease.py::"
REFUSALS = "workflows/test_refusals.py::"
UNFIT = "workflows/worker/test_sessions.py::"
SIGNAL = "workflows/waits/test_signal.py::"
APPROVAL = "workflows/waits/test_approval.py::"
CHILDREN = "workflows/waits/test_children.py::"
DATABASE_ERRORS = "workflows/worker/test_database_errors.py::"
LOST_CLAIMS = "workflows/worker/test_lost_claims.py::"
OUTCOMES = "workflows/worker/test_outcomes.py::"
RETRIES = "workflows/worker/test_retries.py::"
UNDO_IN_DOUBT = "workflows/test_undo_in_doubt.py::"
UNDO_QUESTIONS = "workflows/test_undo_questions.py::"
WORKER_CLAIM = "workflows/worker/test_claim.py::"
CANCELLATION_REQUESTS = "workflows/test_cancellation_requests.py::"
EXPIRY = "workflows/test_expiry.py::"
REFUSED_RESULTS = "workflows/test_refused_results.py::"
UNKNOWN_OUTCOMES = "workflows/test_unknown_outcomes.py::"
ASKING_AGAIN = "workflows/waits/test_asking_again.py::"
SIGNALS_NOBODY_WAITS_FOR = "workflows/waits/test_signals_nobody_waits_for.py::"
SIGNAL_DEADLINES = "workflows/waits/test_signal_deadlines.py::"
TWO_AT_ONCE = "workflows/operations/test_two_at_once.py::"
COST_OF_WAKING = "concurrency/test_cost_of_waking.py::"
MULTIXACTS = "concurrency/test_multixacts.py::"


def _unfenced(why: str, old: str, *tests: str) -> Line:
    """The statement without its fence; `old` has it, and enough around it to be found."""
    return why, old, old.replace("{FENCE}", "({FENCE} OR true)"), *tests


def _in(file: str, *lines: Line) -> Iterator[Mutant]:
    for why, old, new, *tests in lines:
        yield Mutant(why, f"workflows/{file}", old, new, tuple(f"tests/{test}" for test in tests))


# In operations.workflows._request_cancellation, one after the other.
_LOCKS_THE_QUESTIONS = (
    "        tasks = _lock_tasks(workflow_id, open_tasks)"
    "  # before the row is read: another user may hold both, to cancel it\n"
)
_READS_THE_ROW = '        workflow = Workflow.objects.with_state().defer("payload", "context").get(pk=workflow_id)\n'

MUTANTS: list[Mutant] = [
    *_in(
        "journal.py",
        (
            "an attempt that has ended vanishes when its workflow is cancelled",
            "closed_at IS NULL AND {condition} RETURNING",
            "{condition} RETURNING",
            f"{CANCEL}test_what_nobody_runs_is_cancelled_here_and_now",
        ),
        # --- The fence ---
        (
            "fence: closing an attempt as vanished",
            "{closing_as_vanished(FENCE)}",
            "{closing_as_vanished(f'({FENCE} OR true)')}",
            f"{LATE}test_it_opens_no_attempt_and_closes_none",
        ),
        _unfenced(
            "fence: opening an attempt",
            " WHERE {FENCE}\n        ON CONFLICT",
            f"{LATE}test_it_opens_no_attempt_and_closes_none",
        ),
        _unfenced("fence: the proof itself", "SELECT {FENCE}", f"{LATE}test_it_looks_nothing_up"),
        (
            "two workers open the same attempt: the later one meets it as an error of the engine",
            "        ON CONFLICT (workflow_id, number) DO NOTHING\n",
            "",
            f"{JOURNAL}test_a_worker_that_lost_its_row_while_it_opened_an_attempt_is_in_nobodys_way",
        ),
        # --- What is deferred ---
        (
            "what is deferred is dropped by the next that is",
            "    flush(attempt)\n    attempt.deferred = (sql, parameters)",
            "    attempt.deferred = (sql, parameters)",
            f"{EFFECTS}test_what_is_deferred_is_written_before_something_else_is_deferred",
        ),
        (
            "what could not be flushed is forgotten",
            "        execute(*attempt.deferred)\n        attempt.deferred = None\n",
            "        deferred, attempt.deferred = attempt.deferred, None\n        execute(*deferred)\n",
            f"{LEDGER}test_the_result_of_a_call_is_written_also_when_the_claim_is_lost",
        ),
        (
            "what could not be written with the next statement is forgotten",
            "    rows = execute(sql, parameters)\n    attempt.deferred = None\n",
            "    attempt.deferred = None\n    rows = execute(sql, parameters)\n",
            f"{EFFECTS}test_a_result_that_could_not_be_written_with_the_next_intent_is_written_by_the_recovery",
        ),
        (
            "a lost journal that a step swallows is forgotten",
            "            attempt.lost = lost",
            "            pass",
            f"{APPROVAL}test_a_step_that_swallows_everything_does_not_go_on_when_the_journal_fails",
        ),
        (
            "a lookup that swallows the loss of the journal goes on with a new one",
            "    if attempt and attempt.lost:\n        raise attempt.lost\n    try:",
            "    try:",
            f"{REFUSALS}test_a_lookup_that_swallows_the_loss_is_not_believed",
        ),
        # --- What ended an attempt ---
        (
            "an attempt that was decided is closed as lost",
            "WHERE id = %(attempt_id)s AND outcome IN ('', 'vanished')",
            "WHERE id = %(attempt_id)s",
            f"{JOURNAL}test_what_commits_late_is_not_overwritten_as_lost",
        ),
        (
            "an end that is told twice is told twice in the history",
            "AND e.kind = %(outcome)s)",
            "AND e.kind = %(outcome)s AND false)",
            f"{DEATHS}test_told_twice_is_told_once",
        ),
        (
            "an end that corrects what vanished is told beside it",
            "     WHERE NOT EXISTS (SELECT FROM corrected)\n       AND",
            "     WHERE",
            f"{DEATHS}test_it_corrects_what_the_next_worker_found",
        ),
        (
            "deaths before a decision still count",
            "AND outcome IN ('complete', 'retry', 'waiting', 'failed')",
            "AND outcome IN ('complete')",
            f"{POISON}test_a_poisoned_workflow_that_is_retried_has_three_more_lives",
            f"{POISON}test_an_overdue_step_is_a_failure_of_that_step",
        ),
        (
            "deaths before a cancellation still count",
            "kind IN ('cancelled', 'retried')",
            "kind IN ('retried')",
            f"{UNDO_QUESTIONS}test_workers_that_died_before_it_was_cancelled_say_nothing_of_its_undos",
        ),
        (
            "deaths before a person's retry still count",
            "kind IN ('cancelled', 'retried')",
            "kind IN ('cancelled')",
            f"{POISON}test_one_that_is_cancelled_and_retried_has_all_its_lives_too",
            f"{UNDO_QUESTIONS}test_a_worker_that_was_ended_in_an_undo_says_nothing_of_a_retry",
        ),
    ),
    *_in(
        "ledger.py",
        (
            "a call that was begun, and no more is known, is made again",
            "effect.state in IN_DOUBT:\n            effect = self.doubts.resolve",
            "effect.state == UNKNOWN:\n            effect = self.doubts.resolve",
            f"{EFFECTS}test_a_call_whose_worker_died_in_it_is_looked_up_and_not_repeated",
        ),
        # --- A repeat of a call in doubt ---
        (
            "a repeat that fails settles the doubt",
            "not (repeats_a_doubt or nobody_knows)",
            "not nobody_knows",
            f"{DOUBTS}test_a_failed_repeat_leaves_the_call_in_doubt",
        ),
        (
            "a repeat of an undo that fails settles the doubt",
            "describe, repeats_a_doubt=expected in IN_DOUBT)",
            "describe)",
            f"{DOUBTS}test_a_failed_repeat_leaves_an_undo_in_doubt",
        ),
        (
            "an answer to the key itself settles nothing",
            "return error.answers_key or not",
            "return not",
            f"{DOUBTS}test_an_answer_to_the_key_itself_settles_the_doubt",
        ),
        (
            "a lost answer is believed to answer the key",
            "or isinstance(error, UnknownOutcome):",
            "or (isinstance(error, UnknownOutcome) and not error.answers_key):",
            f"{DOUBTS}test_an_unknown_outcome_settles_nothing_whatever_it_claims_to_answer",
        ),
        (
            "a repeat that does not apply settles the doubt",
            "if result is None and repeats_a_doubt:",
            "if False:",
            f"{DOUBTS}test_a_repeat_that_does_not_apply_leaves_the_call_in_doubt_and_is_a_failure",
        ),
        (
            "a step that had its key in hand and returned None says that it did not call",
            "if result is None and effects.keys_in_use[self.workflow.pk].requested:",
            "if False:",
            f"{DOUBTS}test_a_step_that_asks_for_its_key_and_returns_none_may_have_called",
        ),
        # --- Steps that have left the list ---
        (
            "a step that did not apply begins its call beside one that is not declared",
            "if expected not in IN_DOUBT:",
            "if expected not in (*IN_DOUBT, SKIPPED):",
            f"{REMOVED_STEPS}test_a_step_that_did_not_apply_begins_no_call_beside_it",
        ),
        (
            "a call that was undone is made again beside one that is not declared",
            "if expected not in IN_DOUBT:",
            "if expected not in IN_DOUBT and not (known and expected is None):",
            f"{REMOVED_STEPS}test_what_was_undone_is_not_done_again_beside_it",
        ),
        (
            "a call that was never sent is made beside one that is not declared",
            "if expected not in IN_DOUBT:",
            "if expected not in (*IN_DOUBT, NOT_DONE):",
            f"{REMOVED_STEPS}test_the_release_before_does_not_make_the_call_that_its_successor_has_made",
        ),
        (
            "a call in doubt is not repeated beside one that is not declared",
            "if expected not in IN_DOUBT:",
            "if True:",
            f"{REMOVED_STEPS}test_a_call_that_was_begun_before_is_repeated_beside_it",
        ),
        # --- What a step makes of not knowing ---
        (
            "a wait after the call says that there was none",
            "(UnknownOutcome, StepTimeout, Suspend, waits.WaitError)",
            "(UnknownOutcome, StepTimeout, waits.WaitError)",
            f"{UNKNOWN_OUTCOMES}test_what_a_step_has_called_before_it_waits_is_not_forgotten",
        ),
        (
            "a wait that fails after the call says that there was none",
            "(UnknownOutcome, StepTimeout, Suspend, waits.WaitError)",
            "(UnknownOutcome, StepTimeout, Suspend)",
            f"{UNKNOWN_OUTCOMES}test_a_wait_that_fails_says_nothing_of_the_call_before_it",
        ),
        (
            "a step that catches that nobody knows says that nothing happened",
            "not (repeats_a_doubt or nobody_knows)",
            "not repeats_a_doubt",
            f"{UNKNOWN_OUTCOMES}test_an_error_of_its_own_for_an_unknown_outcome_says_nothing_of_the_call",
        ),
        (
            "a step that is out of time says that nothing happened",
            "nothing_happened = in_time and ",
            "nothing_happened = ",
            f"{UNKNOWN_OUTCOMES}test_an_error_of_its_own_for_a_timeout_says_nothing_of_the_call",
        ),
        (
            "a timeout that a step swallows says that it did not apply",
            "if recorded is None and monotonic() >= out_of_time_at:",
            "if False:",
            f"{UNKNOWN_OUTCOMES}test_a_timeout_that_a_step_swallows_does_not_say_that_it_did_not_apply",
        ),
    ),
    *_in(
        "effects.py",
        (
            "a thread of the step is given the key of the first generation",
            "if in_use := keys_in_use.get(workflow.pk):",
            "if in_use := keys_in_use.get(0):",
            f"{LEDGER}test_a_thread_of_the_step_is_given_the_key_of_its_generation",
        ),
    ),
    *_in(
        "doubts.py",
        (
            "a call that might not fail is let go, for the step of its name may fail now",
            "if not (step and step.once):",
            "if not step:",
            f"{REMOVED_STEPS}test_it_is_asked_about_though_the_step_that_has_its_name_now_may_fail",
        ),
        (
            "a person is asked about a call under another name, though its step has a lookup",
            "self.resolve(step, context, effect, look_every=",
            "self.resolve(removed_step(effect.step), context, effect, look_every=",
            f"{REMOVED_STEPS}test_a_call_under_another_name_of_a_step_is_looked_up",
        ),
        (
            "a workflow completes beside a call in doubt of a step that left the list",
            "            if effect.state in IN_DOUBT and not step.best_effort:",
            "            if False:",
            f"{REMOVED_STEPS}test_nothing_is_complete_while_a_call_of_a_step_that_left_the_list_is_in_doubt",
        ),
        (
            "a person is asked about a best-effort call before a workflow completes",
            "            if effect.state in IN_DOUBT and not step.best_effort:",
            "            if effect.state in IN_DOUBT:",
            f"{REMOVED_STEPS}test_of_a_best_effort_call_nobody_needs_to_know",
        ),
        (
            "before a workflow completes, the question about a doubt looks for no answer of its own",
            "self.resolve(step, context, effect, look_every=UNDECLARED_PATIENCE)",
            "self.resolve(step, context, effect)",
            f"{REMOVED_STEPS}test_a_question_about_it_is_closed_by_a_release_that_finds_out",
        ),
        (
            "what was said of a release that lacks a step holds for the next one, too",
            "if effect.asked_if_gone and definition.declares(effect.step):",
            "if False:",
            f"{REMOVED_STEPS}test_what_a_person_said_is_forgotten_once_the_step_is_declared_again",
        ),
        (
            "what does not apply any more is repeated until it has failed too often",
            "if honoured and effect.error_code != DOES_NOT_APPLY:",
            "if honoured:",
            f"{DOUBTS}test_after_a_repeat_that_does_not_apply_a_person_is_asked_and_it_is_repeated_no_more",
        ),
        (
            "a new call is begun beside one in doubt that is not declared",
            "effect.state in MAY_HAVE_HAPPENED and not",
            "effect.state == DONE and not",
            f"{REMOVED_STEPS}test_beside_the_call_of_a_step_that_is_not_declared_no_new_call_is_begun",
        ),
        (
            "what has not happened, of a step that is not declared, holds the workflow up",
            "effect.state in MAY_HAVE_HAPPENED and not",
            "not",
            f"{REMOVED_STEPS}test_what_has_not_happened_holds_nothing_up",
        ),
        (
            "a workflow that waits for a declaration does not look for it",
            "look_every=UNDECLARED_LOOK",
            "look_every=None",
            f"{REMOVED_STEPS}test_beside_the_call_of_a_step_that_is_not_declared_no_new_call_is_begun",
        ),
        (
            "a workflow whose question waits for a person does not look for a declaration",
            "                look_every=UNDECLARED_PATIENCE,",
            "                look_every=None,",
            f"{REMOVED_STEPS}test_after_an_hour_a_person_is_asked_and_the_workflow_goes_on_looking",
        ),
        (
            "a question that nobody has answered about a step is not asked again",
            "            waits.withdraw(self.workflow, _undeclared_question(effect))",
            "            return",
            f"{REMOVED_STEPS}test_a_question_that_nobody_answers_in_a_month_is_asked_again",
        ),
        (
            "a retry is not asked about a step that is not declared",
            "raise Undeclared(message, code=UNDECLARED_TASK_TYPE, wait_id=answer.wait_id)",
            "raise Undeclared(message, code=UNDECLARED_TASK_TYPE)",
            f"{REMOVED_STEPS}test_a_person_says_that_it_is_wrong_and_a_retry_asks_again",
        ),
        (
            "a lookup begins before the result of the call before is written",
            "        journal.flush(self.attempt)\n        journal.require_claim(self.attempt)\n",
            "        journal.require_claim(self.attempt)\n",
            f"{EFFECTS}test_what_came_of_a_call_is_written_before_the_next_one_is_found_out",
        ),
        (
            "a lookup begins although the row may be lost",
            "        journal.flush(self.attempt)\n        journal.require_claim(self.attempt)\n",
            "        journal.flush(self.attempt)\n",
            f"{LATE}test_it_looks_nothing_up",
        ),
        (
            "a person is asked before the result of the call before is written",
            "        journal.flush(self.attempt)\n        answer = waits.ask(",
            "        answer = waits.ask(",
            f"{EFFECTS}test_what_came_of_a_call_is_written_before_the_next_one_is_found_out",
        ),
        (
            "not found counts at once",
            "        if found is None:\n            self._require_settled(step, effect)\n",
            "        if found is None:\n",
            f"{LEDGER}test_not_found_counts_only_when_the_call_can_no_longer_be_on_its_way",
        ),
        (
            "a person is asked while the call may be on its way",
            "        self._require_settled(step, effect)\n        return self._ask(effect)",
            "        return self._ask(effect)",
            f"{LEDGER}test_a_person_is_not_asked_while_the_call_may_still_be_on_its_way",
        ),
        (
            "a person is asked whether there is something to undo while the call may be on its way",
            "        self._require_settled(step, effect)\n        while True:",
            "        while True:",
            f"{UNDO_IN_DOUBT}test_nobody_is_asked_while_the_call_may_still_be_on_its_way",
        ),
    ),
    *_in(
        "effect_rows.py",
        # --- The fence ---
        _unfenced(
            "fence: beginning a call, or an undo",
            "{FENCE} AND (%(undo)s OR NOT",
            f"{LATE}test_it_begins_no_call",
            f"{LATE}test_it_begins_no_undo",
        ),
        _unfenced(
            "fence: deciding on a call in doubt",
            "state = %(expected)s AND {FENCE}",
            f"{LATE}test_it_decides_on_no_call_in_doubt",
        ),
        _unfenced(
            "fence: counting the failures of an undo",
            "WHERE id = %(effect_id)s AND {FENCE} RETURNING id",
            f"{LATE}test_it_counts_no_failure_of_an_undo",
        ),
        # --- The states ---
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
            f"{LEDGER}test_a_late_result_does_not_overwrite_what_a_later_attempt_took_over",
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
            "AND (%(undo)s OR NOT {inbox",
            "AND (true OR %(undo)s OR NOT {inbox",
            f"{CANCELLATION_REQUESTS}test_one_that_is_running_ends_before_its_next_call",
        ),
        (
            "an undo is not begun because somebody wants the workflow cancelled",
            "AND (%(undo)s OR NOT {inbox",
            "AND (false AND %(undo)s OR NOT {inbox",
            f"{EFFECTS}test_a_request_to_cancel_does_not_keep_an_undo_from_being_called",
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
            "an INTENT replaces one that was written since the ledger was read",
            " WHERE e.state = %(expected)s\n",
            " WHERE coalesce(e.state = %(expected)s, true)\n",
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
            f"{LEDGER}test_a_late_result_does_not_overwrite_what_a_later_attempt_took_over",
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
            "key=lambda effect: (-effect.call_age, effect.id)",
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
    *_in(
        "effects.py",
        (
            "an undo is tried although its call had not happened",
            "MAY_HAVE_HAPPENED = (*IN_DOUBT, DONE)",
            "MAY_HAVE_HAPPENED = (*IN_DOUBT, DONE, NOT_DONE)",
            f"{UNDO}test_what_did_not_happen_is_not_undone",
        ),
    ),
    *_in(
        "definition.py",
        (
            "a step that is no longer once is declared",
            "(step is not None and step.once)",
            "step is not None",
            f"{REMOVED_STEPS}test_a_step_that_is_no_longer_once_is_not_declared",
        ),
        (
            "a step that has left the list on purpose is not declared",
            "return name in self.retired or ",
            "return ",
            f"{REMOVED_STEPS}test_a_release_that_declares_the_step_goes_on",
        ),
    ),
    *_in(
        "waits/wait.py",
        _unfenced("fence: making a wait", "     WHERE {FENCE}\n    ON CONFLICT", f"{LATE}test_it_makes_no_wait"),
        _unfenced(
            "fence: letting a wait expire",
            "outcome = '' AND {FENCE} RETURNING outcome",
            f"{LATE}test_it_lets_no_wait_expire",
        ),
        (
            "a wait that a late worker is making is told to engineers as a fault",
            "\n    ON CONFLICT (workflow_id, name, generation) DO NOTHING",
            "",
            f"{IN_FLIGHT}test_a_wait_that_it_is_still_making_is_the_wait_of_the_next_worker",
        ),
        (
            "an expiry overwrites the answer that a late worker is writing",
            "WHERE id = %(wait_id)s AND outcome = '' AND {FENCE}",
            "WHERE id = %(wait_id)s AND {FENCE}",
            f"{IN_FLIGHT}test_what_it_has_found_and_is_still_writing_stands_before_the_deadline",
        ),
        (
            "it sleeps on although a late worker has answered the wait",
            "AND outcome <> ''\", [wait.id]):",
            "AND outcome <> '' AND false\", [wait.id]):",
            f"{IN_FLIGHT}test_an_answer_that_it_is_still_writing_is_the_answer_of_the_next_worker",
        ),
        (
            "a wait expires before its deadline",
            "    if wait.outcome or not wait.overdue:",
            "    if wait.outcome:",
            f"{SIGNAL_DEADLINES}test_the_deadline_does_not_move_over_ten_attempts",
            f"{SIGNALS}test_the_workers_own_look_is_what_finds_it_when_the_sender_came_too_early",
        ),
        (
            "an error asks another workflow's question anew",
            "filter(workflow=workflow_id, pk__in=failed)",
            "filter(pk__in=failed)",
            f"{ASKING_AGAIN}test_a_retry_asks_no_other_workflow_anew",
        ),
        (
            "a wait that was superseded is met again",
            'AND name = %(name)s AND NOT superseded"',
            'AND name = %(name)s"',
            f"{ASKING_AGAIN}test_a_superseded_question_is_asked_again",
        ),
    ),
    *_in(
        "waits/signal.py",
        _unfenced("fence: using a signal up", "w.outcome = '' AND {FENCE}", f"{LATE}test_it_uses_no_signal_up"),
        _unfenced(
            "fence: recording what a look has found",
            "AND outcome = '' AND {FENCE} RETURNING",
            f"{LATE}test_it_records_nothing_that_it_has_found_by_itself",
        ),
        (
            "a signal overwrites the answer that a late worker is writing",
            "AND w.outcome = '' AND",
            "AND",
            f"{IN_FLIGHT}test_what_it_has_found_and_is_still_writing_stands_before_a_signal",
        ),
        (
            "what a look finds overwrites the answer that a late worker is writing",
            "WHERE id = %(wait_id)s AND outcome = '' AND {FENCE}",
            "WHERE id = %(wait_id)s AND {FENCE}",
            f"{IN_FLIGHT}test_what_it_has_found_and_is_still_writing_stands_before_another_look",
        ),
        (
            "one signal answers two waits of a workflow",
            "(SELECT id, name, payload, source, created_at FROM workflows_signal\n"
            "              WHERE workflow_id = %(workflow_id)s AND name = ANY (%(names)s) AND closed_at IS NULL\n",
            "(SELECT id, name, payload, source, created_at FROM workflows_signal\n"
            "              WHERE workflow_id = %(workflow_id)s AND name = ANY (%(names)s)\n",
            f"{SIGNAL}test_each_of_two_waits_takes_a_signal_of_its_own",
        ),
        (
            "one signal of a linking id answers two waits of a workflow",
            "WHERE a.workflow_id = %(workflow_id)s AND a.signal_id = s.id)",
            "WHERE a.workflow_id = %(workflow_id)s AND a.signal_id = s.id AND false)",
            f"{SIGNAL}test_one_of_a_linking_id_answers_every_workflow_that_has_it_once_each",
        ),
        (
            "one workflow closes what its linking id tells all",
            "WHERE s.id = answered.signal_id AND s.workflow_id IS NOT NULL",
            "WHERE s.id = answered.signal_id",
            f"{SIGNAL}test_one_of_a_linking_id_answers_every_workflow_that_has_it_once_each",
        ),
        (
            "the last signal answers, and not the first",
            "ORDER BY id LIMIT 1),\n        answered",
            "ORDER BY id DESC LIMIT 1),\n        answered",
            f"{SIGNAL}test_of_several_names_the_first_to_come_answers",
        ),
    ),
    *_in(
        "waits/children.py",
        _unfenced(
            "fence: closing the signal of the children's end",
            "closed_at IS NULL AND {FENCE}",
            f"{LATE}test_it_joins_no_children",
        ),
        _unfenced(
            "fence: recording how the children have ended",
            "outcome = '' AND {FENCE}",
            f"{LATE}test_it_joins_no_children",
        ),
        (
            "the end of children overwrites what a late worker is writing",
            "WHERE id = %(wait_id)s AND outcome = '' AND",
            "WHERE id = %(wait_id)s AND",
            f"{IN_FLIGHT}test_a_deadline_that_it_is_still_writing_stands_before_the_children_that_have_ended_since",
        ),
        (
            "a parent goes on before its last child has ended",
            "AND parent_wait = %(name)s AND status = 'PENDING')\n        RETURNING",
            "AND parent_wait = %(name)s AND status = 'PENDING' AND false)\n        RETURNING",
            f"{CHILDREN}test_met_again_it_starts_none_again",
            f"{CHILDREN}test_in_the_end_not_all_have_ended",
        ),
        (
            "children that are there already are started again by a retry",
            "            ON CONFLICT (parent_id, parent_wait, child_key) WHERE parent_id IS NOT NULL DO NOTHING)",
            "            )",
            f"{CHILDREN}test_a_retried_parent_looks_anew_how_its_children_have_ended_and_starts_none_again",
        ),
    ),
    *_in(
        "waits/approval.py",
        _unfenced("fence: recording a decision", "w.outcome = '' AND {FENCE}", f"{LATE}test_it_records_no_decision"),
        _unfenced(
            "fence: closing a question whose time is over",
            "state = 'open' AND {FENCE}",
            f"{LATE}test_it_closes_no_question",
        ),
        _unfenced(
            "fence: withdrawing a question", "NOT superseded AND {FENCE}", f"{LATE}test_it_withdraws_no_question"
        ),
        (
            "a decision overwrites the one that a late worker is writing",
            "AND w.outcome = '' AND",
            "AND",
            f"{IN_FLIGHT}test_a_decision_that_it_is_still_writing_is_that_of_the_next_worker",
        ),
        (
            "an expiry overwrites a decision that was committed just before",
            "WHERE id = %(task_id)s AND state = 'open' AND",
            "WHERE id = %(task_id)s AND",
            f"{WAKING}test_a_decision_that_is_on_its_way_at_the_deadline_is_waited_for",
        ),
        (
            "a question expires before its deadline",
            "    if not wait.overdue:",
            "    if False:",
            f"{WAKING}test_a_decision_in_the_moment_of_the_deadline_is_taken_or_refused_and_nothing_between",
        ),
        (
            "a question that is withdrawn stays open in the console",
            "UPDATE workflows_manualtask SET state = 'closed' FROM asked WHERE wait_id = asked.id AND state = 'open'",
            "SELECT 1 FROM asked",
            f"{ASKING_AGAIN}test_a_question_that_is_withdrawn_is_closed_at_once",
        ),
    ),
    *_in(
        "redaction.py",
        (
            "an error of a step's own counts as Python's by its name",
            'if type(error).__module__ == "builtins" and type(error)',
            "if type(error)",
            f"{REDACTION}test_an_error_of_a_steps_own_is_not_pythons_by_its_name_alone",
        ),
        (
            "any error of Python's own may tell what it quotes",
            " and type(error).__name__ in _PYTHON_ERRORS:",
            ":",
            f"{REDACTION}test_what_a_step_quotes_in_words_of_its_own_is_masked",
        ),
    ),
    *_in(
        "transitions.py",
        (
            "what is at rest is made due",
            'filter(pk=workflow_id, status="PENDING", invisible_until__gt=Now())',
            "filter(pk=workflow_id, invisible_until__gt=Now())",
            f"{TRANSITIONS}test_a_row_that_is_due_or_at_rest_is_not_made_due",
        ),
        (
            "what is due loses its place when it is made due",
            'status="PENDING", invisible_until__gt=Now())',
            'status="PENDING")',
            f"{TRANSITIONS}test_a_row_that_is_due_keeps_its_place",
        ),
        (
            "the sender waits for the worker that holds the row",
            "FOR NO KEY UPDATE OF w SKIP LOCKED)",
            "FOR NO KEY UPDATE OF w)",
            f"{TWO_AT_ONCE}test_a_decision_does_not_wait_for_the_worker_that_holds_the_row",
        ),
        (
            "what has ended is woken",
            "WHERE {condition} AND w.status = 'PENDING' AND w.inv",
            "WHERE {condition} AND w.inv",
            f"{WAKERS}test_nobody_wakes_what_has_ended",
        ),
        (
            "what is due is moved to the front, over and over",
            " AND w.invisible_until > now()\n                   FOR",
            "\n                   FOR",
            f"{WAKERS}test_nobody_wakes_what_is_due",
        ),
        (
            "what is woken goes behind the backlog",
            "invisible_until = least(created_at, now())",
            "invisible_until = now()",
            f"{WAKERS}test_what_is_woken_goes_before_the_backlog",
        ),
        (
            "what a clock that was ahead has made sleeps on when it is woken",
            "invisible_until = least(created_at, now())",
            "invisible_until = created_at",
            f"{WAKERS}test_what_a_clock_that_was_ahead_has_stored_is_due_when_it_is_woken",
        ),
        (
            "a row that is gone is decided",
            ".update(**columns) != 1:",
            ".update(**columns) < 0:",
            f"{SESSIONS}test_a_row_that_is_gone_is_not_decided",
        ),
        (
            "what a workflow listened to before wakes its retries",
            "        **awaited._asdict(),",
            "        **{name: value for name, value in awaited._asdict().items() if value},",
            f"{WAKERS}test_what_it_listened_to_before_does_not_wake_its_retry",
        ),
        (
            "a signal wakes what is put off",
            "        **awaited._asdict(),",
            "        **{name: value for name, value in awaited._asdict().items() if value},",
            f"{SIGNALS_NOBODY_WAITS_FOR}test_a_signal_does_not_wake_what_is_put_off_because_its_claim_is_lost_again_and_again",
        ),
    ),
    *_in(
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
    *_in(
        "worker/claim.py",
        # --- The claim ---
        (
            "a worker waits for the row that another one holds",
            "FOR NO KEY UPDATE SKIP LOCKED\n",
            "FOR NO KEY UPDATE\n",
            f"{CLAIM}test_two_claims_at_the_same_moment_are_of_two_rows",
        ),
        (
            "a claim locks nothing",
            " LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED\n",
            " LIMIT 1\n",
            f"{CLAIM}test_two_claims_at_the_same_moment_are_of_two_rows",
        ),
        (
            "what refers to the row waits for its claim",
            "FOR NO KEY UPDATE SKIP LOCKED\n",
            "FOR UPDATE SKIP LOCKED\n",
            f"{PACE}test_what_refers_to_a_row_need_not_wait_for_its_claim",
        ),
        (
            "the oldest row first, and not the oldest due time",
            "ORDER BY invisible_until, id LIMIT",
            "ORDER BY id LIMIT",
            f"{PACE}test_it_takes_them_in_the_order_of_their_due_times_and_of_their_ids",
        ),
        (
            "rows that are due at the same time in any order",
            "ORDER BY invisible_until, id LIMIT",
            "ORDER BY invisible_until LIMIT",
            f"{PACE}test_it_takes_them_in_the_order_of_their_due_times_and_of_their_ids",
        ),
        (
            "a worker takes another queue's rows",
            "AND queue = %s {self._pool}",
            "AND (true OR queue = %s) {self._pool}",
            f"{WORKER_CLAIM}test_it_says_that_nothing_is_due",
        ),
        (
            "the pool for compensation takes everything",
            '"AND compensating" if',
            '"" if',
            f"{UNDO}test_a_pool_of_its_own_takes_nothing_else",
        ),
        (
            "the watermark passes over rows that are due at the same time",
            'self._select_due("AND (invisible_until, id) >= (%s, %s)", *self._watermark)',
            'self._select_due("AND invisible_until > %s", self._watermark[0])',
            f"{PACE}test_it_takes_them_in_the_order_of_their_due_times_and_of_their_ids",
        ),
        (
            "each look is a full one",
            "        self._full_look_at = monotonic()\n",
            "",
            f"{PACE}test_it_looks_from_the_oldest_due_row_four_times_a_second_and_not_more_often",
        ),
        (
            "a full look every 1.5 s",
            "FULL_LOOK_EVERY = 0.25",
            "FULL_LOOK_EVERY = 1.5",
            f"{PACE}test_it_looks_from_the_oldest_due_row_four_times_a_second_and_not_more_often",
        ),
        (
            "no full look when nothing is due ahead of the watermark",
            "            if claim:\n                return claim\n        self._full",
            "            return claim\n        self._full",
            f"{WORKER_CLAIM}test_the_watermark_does_not_hide_what_becomes_due_behind_it",
        ),
    ),
    *_in(
        "worker/loop.py",
        # --- The connections ---
        (
            "the journal is opened after the claim",
            "        journal.connect()\n",
            "",
            f"{JOURNAL}test_it_is_connected_before_the_claim_begins",
        ),
        (
            "a transaction that was not committed counts as decided",
            "    if not committed:\n        raise ClaimLost",
            "    if False:\n        raise ClaimLost",
            f"{SESSIONS}test_a_connection_that_is_closed_right_before_the_commit_has_decided_nothing",
        ),
        (
            "a hook that fails after the commit is the engine's failure",
            "        if not committed:\n            raise\n",
            "        raise\n",
            f"{DATABASE_ERRORS}test_a_hook_that_fails_after_the_commit_changes_nothing",
        ),
        (
            "the row is decided inside a savepoint",
            "            decide(claim.workflow, self._attempt, outcome)",
            "            with transaction.atomic():\n                decide(claim.workflow, self._attempt, outcome)",
            f"{MULTIXACTS}test_a_drain_makes_no_multixacts",
        ),
        # --- Waking ---
        (
            "a worker that has suspended a workflow does not look again",
            "            inbox.wake(claim.workflow.pk)\n",
            "            pass\n",
            f"{SIGNALS}test_the_workers_own_look_is_what_finds_it_when_the_sender_came_too_early",
        ),
        (
            "a worker that has ended a child does not tell its parent",
            "            inbox.notify_parent(claim.workflow.pk)\n",
            "            pass\n",
            f"{SIGNALS}test_the_one_that_looks_second_sees_both",
        ),
        # --- The chores ---
        (
            "two workers do the chores at once",
            "if cursor.fetchone() == (True,):",
            "if cursor.fetchone():",
            f"{PACE}test_one_worker_of_all_does_the_chores",
        ),
        (
            "the chores are done after each workflow",
            "CHORES_EVERY = CHECK_EVERY = 1.0",
            "CHORES_EVERY = CHECK_EVERY = 0.0",
            f"{PACE}test_the_chores_are_done_once_a_second",
        ),
        ("nobody sweeps", "                self._sweep()\n", "", f"{PACE}test_the_chores_are_done_once_a_second"),
        (
            "what has taken too long is not woken",
            "                inbox.wake_expired()\n",
            "",
            f"{EXPIRY}test_one_that_waits_is_woken_when_its_time_is_over_and_undone",
        ),
        (
            "what came too late is not put aside",
            "            inbox.ignore_late_signals()\n",
            "",
            f"{SIGNALS_NOBODY_WAITS_FOR}test_one_that_comes_in_the_moment_of_the_end_is_put_aside_by_the_chores",
        ),
        (
            "no rest after a sweep",
            "* REST_AFTER_SWEEP",
            "* 0",
            f"{PACE}test_after_a_sweep_it_rests_twenty_times_as_long_as_that_took",
        ),
        # --- Between two steps ---
        (
            "a request to cancel is not seen between two steps",
            "            raise cancelled\n",
            "            pass\n",
            f"{CANCELLATION_REQUESTS}test_between_steps_that_make_no_call_it_is_seen_too",
        ),
        (
            "a request to cancel ends what is being undone",
            "if claim.cancelled and not workflow.compensating else",
            "if claim.cancelled else",
            f"{EFFECTS}test_a_request_to_cancel_does_not_keep_an_undo_from_being_called",
        ),
        (
            "a workflow whose time is over goes on to its next step",
            "            raise WorkflowExpired\n",
            "            pass\n",
            f"{EXPIRY}test_one_that_runs_ends_between_two_steps",
        ),
        # --- After a loss ---
        (
            "a row that is lost twice is due at once",
            "if postpone_reason or losses > 1:",
            "if postpone_reason:",
            f"{FAULTS}test_a_row_whose_steps_end_the_claim_does_not_hold_up_the_others",
        ),
    ),
    *_in(
        "executor.py",
        (
            "the history quotes the row that the database has refused",
            'text = text.partition("\\n")[0]',
            "pass",
            f"{DATABASE_ERRORS}test_a_deferred_constraint_is_the_attempts_failure_and_not_the_commits",
        ),
        (
            "a release that makes no calls does not look for those of its predecessors",
            "keeps_calls = attempt.number > 1 or any(",
            "keeps_calls = any(",
            f"{REMOVED_STEPS}test_nothing_is_complete_while_a_call_of_a_step_that_left_the_list_is_in_doubt",
        ),
        (
            "an error on a lost claim is the step's failure",
            "        journal.require_claim(attempt)  # on a lost",
            "        pass  # on a lost",
            f"{LATE}test_what_it_was_told_after_it_had_lost_the_row_is_no_failure_of_the_step",
        ),
        (
            "the steps are given the row that is decided on",
            "self.workflow_copy = deepcopy(workflow)",
            "self.workflow_copy = workflow",
            f"{OUTCOMES}test_what_a_step_does_to_its_workflow_changes_neither_the_row_nor_the_decision",
        ),
        (
            "the steps run outside a savepoint",
            "with journal.bind_attempt(attempt), transaction.atomic():",
            "with journal.bind_attempt(attempt):",
            f"{RETRIES}test_a_retryable_failure_leaves_nothing_behind_but_its_history",
        ),
        (
            "a best-effort step has no savepoint of its own",
            '                with transaction.atomic():\n                    entry["outcome"]',
            '                if True:\n                    entry["outcome"]',
            f"{OUTCOMES}test_a_best_effort_step_may_fail_and_its_writes_are_gone",
        ),
        (
            "the last result is not written before the decision",
            "    journal.flush(attempt)\n    return outcome",
            "    return outcome",
            f"{LEDGER}test_twenty_once_steps_make_one_commit_each_and_one_more",
        ),
        (
            "a result is not written before a step that is not once",
            "        journal.flush(attempt)  # what",
            "        pass  # what",
            f"{LEDGER}test_it_is_written_before_any_step_that_is_not_once",
        ),
        (
            "a suspension that a step swallows is not heard",
            "    if attempt.suspended:\n        raise attempt.suspended",
            "    if False:\n        raise attempt.suspended",
            f"{APPROVAL}test_a_step_cannot_swallow_the_suspension",
        ),
        (
            "deferred constraints are checked by the commit alone",
            "SET CONSTRAINTS ALL IMMEDIATE; SET",
            "SET",
            f"{DATABASE_ERRORS}test_a_deferred_constraint_is_the_attempts_failure_and_not_the_commits",
        ),
        (
            "a best-effort step leaves its constraints for the others",
            "                    check_deferred_constraints(attempt)\n",
            "",
            f"{OUTCOMES}test_a_best_effort_step_may_break_its_own_savepoint",
        ),
        (
            "after a best-effort step constraints are deferred no more",
            "SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED; {also}",
            "SET CONSTRAINTS ALL IMMEDIATE; {also}",
            f"{SESSIONS}test_constraints_are_deferred_again_after_a_best_effort_step",
        ),
        (
            "what a step sets for the session outlives its attempt",
            'also="RESET ALL"',
            'also=""',
            f"{SESSIONS}test_what_a_step_sets_for_the_session_ends_with_its_attempt",
        ),
        (
            "after RESET ALL the times are the server's",
            "    connection.ensure_timezone()  #",
            "    #",
            f"{SESSIONS}test_the_time_zone_is_djangos_again_after_each_attempt",
        ),
        (
            "a step that swallows a database error loses its writes without a word",
            "    if transaction_is_broken():\n        # Without",
            "    if False:\n        # Left",
            f"{DATABASE_ERRORS}test_a_step_whose_inner_transaction_was_marked_for_rollback_is_told",
        ),
        (
            "a best-effort step swallows the loss of the claim",
            "if not step.best_effort or transaction_is_broken():",
            "if not step.best_effort:",
            f"{SESSIONS}test_no_step_runs_after_a_best_effort_step_has_lost_the_claim",
        ),
    ),
    *_in(
        "decisions.py",
        (
            "an attempt that is not to be seen is decided",
            "    if closed != 1:",
            "    if False:",
            f"{LOST_CLAIMS}test_nothing_is_decided_while_the_attempt_is_not_to_be_seen",
        ),
        (
            "the server shows a patient's context as the text of a statement",
            "    with server_side_binding():\n",
            "    if True:\n",
            f"{OUTCOMES}test_the_server_never_shows_a_context_as_the_text_of_a_statement",
        ),
        (
            "a workflow that completes leaves its questions open",
            "    if attempt.number > 1:",
            "    if False:",
            f"{CANCELLATION_REQUESTS}test_who_requests_it_and_the_worker_that_completes_it_close_many_questions_without_a_deadlock",
        ),
    ),
    *_in(
        "compensation.py",
        (
            "effects are undone in the order in which they were done",
            "effects = reversed(self.ledger.rows.latest())",
            "effects = self.ledger.effects()",
            f"{UNDO}test_it_undoes_in_reverse_order_and_fails_then",
        ),
        (
            "an error on a lost claim is the undo's failure",
            "                    journal.require_claim(self.attempt)  # on",
            "                    pass  # on",
            f"{LATE}test_what_it_was_told_after_it_had_lost_the_row_is_no_failure_of_the_undo",
        ),
        (
            "the last undo is not written before the decision",
            "    journal.flush(attempt)\n    return outcome",
            "    return outcome",
            f"{UNDO}test_it_undoes_in_reverse_order_and_fails_then",
        ),
        (
            "a person is asked before the undo before is written",
            "        journal.flush(self.attempt)\n        entry:",
            "        entry:",
            f"{EFFECTS}test_an_undo_is_written_before_a_person_is_asked_about_the_next_one",
        ),
        (
            "questions are closed in any order",
            '.order_by("pk").select_for_update(no_key=True)\n    ManualTask',
            ".order_by().select_for_update(no_key=True)\n    ManualTask",
            f"{CANCELLATION_REQUESTS}test_who_requests_it_and_the_worker_that_completes_it_close_many_questions_without_a_deadlock",
        ),
        (
            "questions are closed without being locked first",
            '.order_by("pk").select_for_update(no_key=True)\n    ManualTask',
            '.order_by("pk")\n    ManualTask',
            f"{CANCELLATION_REQUESTS}test_who_requests_it_and_the_worker_that_completes_it_close_many_questions_without_a_deadlock",
        ),
        (
            "a cancellation that comes too late closes what a compensation asks",
            ".exclude(task_type__in=KEPT_ON_CANCEL)",
            "",
            f"{CANCELLATION_REQUESTS}test_a_request_that_comes_too_late_leaves_what_a_compensation_asks",
        ),
        (
            "questions stay open while the workflow is undone",
            "        close_questions(workflow.pk)\n        transitions",
            "        transitions",
            f"{UNDO_QUESTIONS}test_other_questions_are_closed_when_it_fails",
        ),
        (
            "what a workflow was told and has not used is read by each sweep after its end",
            "    inbox.ignore_signals(workflow.pk)\n",
            "",
            f"{SIGNALS_NOBODY_WAITS_FOR}test_what_nobody_has_used_is_put_aside_as_the_workflow_ends_and_heeded_again_when_it_is_retried",
        ),
        (
            "a wait for children is looked at by each sweep after the parent's end",
            'outcome="").update(superseded=True)',
            'outcome="").count()',
            f"{WAKERS}test_a_workflow_that_has_ended_waits_for_no_children_any_more",
        ),
        (
            "a call in doubt is undone without finding out about it",
            "        if effect.state != Effect.State.DONE:\n            effect = self.ledger",
            "        if False:\n            effect = self.ledger",
            f"{UNDO_IN_DOUBT}test_a_lookup_finds_that_it_happened_and_it_is_undone",
        ),
        (
            "what an undo sets for the session holds for the next",
            "                        reset_session(self.attempt)\n",
            "",
            f"{SESSIONS}test_what_an_undo_sets_for_the_session_ends_with_it",
        ),
        (
            "an undo runs outside a savepoint",
            "                    with transaction.atomic():\n                        self._undo",
            "                    if True:\n                        self._undo",
            f"{SESSIONS}test_an_undo_that_fails_leaves_no_writes_behind",
        ),
    ),
    *_in(
        "operations/guards.py",
        (
            "an operation waits for the worker that holds the row",
            "select_for_update(nowait=True, no_key=True)",
            "select_for_update(no_key=True)",
            f"{TWO_AT_ONCE}test_a_row_that_a_worker_holds_is_refused_without_waiting",
        ),
    ),
    *_in(
        "operations/tasks.py",
        (
            "a decision wakes before it is committed",
            "    inbox.try_wake(workflow_id=task.workflow_id)\n",
            "        inbox.try_wake(workflow_id=task.workflow_id)\n",
            f"{TWO_AT_ONCE}test_the_wake_up_comes_after_the_commit_of_the_signal",
        ),
        (
            "a decision wakes nobody",
            "    inbox.try_wake(workflow_id=task.workflow_id)\n",
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
    *_in(
        "operations/workflows.py",
        (
            "a request to cancel wakes nobody, should the worker just have let go",
            '    inbox.try_wake(workflow_id=workflow_id)\n    return "It is running',
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
    *_in(
        "worker/slots.py",
        (
            "a status that was half written is read",
            "            if zlib.crc32(record) == checksum:",
            "            if True:",
            f"{STAMPS}test_what_is_not_whole_is_not_read",
        ),
        (
            "a status counts before it is written",
            "        self._memory[at : at + _RECORD_SIZE] = record + _CHECKSUM.pack(zlib.crc32(record))\n"
            "        self._memory[self._start] = other\n",
            "        self._memory[self._start] = other\n"
            "        self._memory[at : at + _RECORD_SIZE] = record + _CHECKSUM.pack(zlib.crc32(record))\n",
            f"{STAMPS}test_what_was_written_before_a_death_in_the_midst_of_a_write_is_read",
            f"{STAMPS}test_nothing_torn_is_ever_read",
        ),
    ),
    *_in(
        "worker/lease.py",
        (
            "the journal waits for the claim for ever",
            '"lock_timeout": "5000"',
            '"lock_timeout": "0"',
            f"{SESSIONS}test_neither_end_waits_for_ever_for_the_other",
        ),
        (
            "the journal keeps plans that read whole tables",
            '"enable_seqscan": "off"',
            '"enable_seqscan": "on"',
            f"{LEASE}test_what_the_journal_repeats_is_prepared_and_reads_by_an_index_forever",
        ),
        (
            "the database says what a worker reads",
            'r"read\\ committed"',
            'r"repeatable\\ read"',
            f"{SESSIONS}test_a_worker_reads_what_is_committed_whatever_the_database_would_do",
        ),
        (
            "a claim may be silent for ever",
            '"idle_in_transaction_session_timeout": lease',
            '"idle_in_transaction_session_timeout": "0"',
            f"{LEASE}test_a_claim_may_be_silent_longer_than_the_longest_step",
        ),
        (
            "a claim may be at one statement for ever",
            '"statement_timeout": lease',
            '"statement_timeout": "0"',
            f"{LEASE}test_a_claim_may_be_silent_longer_than_the_longest_step",
        ),
        (
            "the server does not look whether anybody waits for a statement's result",
            '"client_connection_check_interval": "1000"',
            '"client_connection_check_interval": "0"',
            f"{SESSIONS}test_neither_end_waits_for_ever_for_the_other",
        ),
    ),
    # --- Whose an error of the database is ---
    *_in(
        "journal.py",
        (
            "what cannot be written just now is given up",
            "if not (connections[ALIAS].is_usable() and sqlstates.is_statement_error(lost)):",
            "if not connections[ALIAS].is_usable():",
            f"{REFUSED_RESULTS}test_a_result_that_cannot_be_written_just_now_is_kept_and_nothing_else_is_taken",
        ),
        (
            "what the database refuses the journal is the step's",
            "    except Error as error:\n        lost =",
            "    except OSError as error:\n        lost =",
            f"{REFUSALS}test_whatever_the_journal_raises_the_claim_is_lost",
        ),
        (
            "what the database refuses the engine on the claim is the step's",
            "if isinstance(error, sqlstates.DATABASE_ERRORS) and error is not attempt.step_error:",
            "if False:",
            f"{REFUSALS}test_no_statement_of_ours_on_the_claim_is_charged_to_a_step",
            f"{REFUSALS}test_what_is_refused_to_us_counts_as_no_failure_of_an_undo",
        ),
        (
            "a step's own database error loses the claim",
            "sqlstates.DATABASE_ERRORS) and error is not attempt.step_error:",
            "sqlstates.DATABASE_ERRORS):",
            f"{REFUSALS}test_a_step_s_own_database_error_is_its_own_wherever_it_is_raised",
        ),
        (
            "a step that swallows the loss of the journal and raises its own error is believed",
            "    if attempt.lost:\n        raise attempt.lost\n    if isinstance",
            "    if isinstance",
            f"{REFUSALS}test_a_step_that_swallows_the_loss_and_raises_its_own_is_not_believed",
        ),
    ),
    *_in(
        "executor.py",
        (
            "a host without memory fails the workflow",
            "StepTimeout | MemoryError)",
            "StepTimeout)",
            f"{DATABASE_ERRORS}test_memory_that_runs_out_is_tried_again",
        ),
        (
            "what the database cannot do just now fails the workflow",
            " or sqlstates.is_transient(error)",
            "",
            f"{DATABASE_ERRORS}test_what_the_database_cannot_do_now_is_retried",
        ),
    ),
    *_in(
        "poison.py",
        (
            "nobody is asked about what is lost for ever",
            "if len(losses(attempt)) >= LOSSES_BEFORE_A_PERSON and (",
            "if False and (",
            f"{POISON}test_ten_losses_without_a_decision_ask_a_person",
        ),
        (
            "nobody is asked about a compensation that is lost for ever",
            "if len(lost := losses(attempt)) >= LOSSES_BEFORE_A_PERSON:",
            "if len(lost := losses(attempt)) >= 10**9:",
            f"{POISON}test_a_compensation_that_is_lost_ten_times_asks_a_person_and_counts_no_failure_before",
        ),
        (
            "silence about what is lost is taken for an answer",
            "                withdraw(workflow, name)  # so that",
            "                pass  # so that",
            f"{POISON}test_nobodys_silence_fails_what_is_lost_it_is_tried_once_more_and_then_asked_about_again",
        ),
    ),
    *_in(
        "worker/loop.py",
        (
            "a result that only a stopping worker knows is dropped",
            "        self._write_what_is_left()\n",
            "",
            f"{REFUSED_RESULTS}test_a_worker_that_is_stopped_goes_on_trying_to_write_a_result_for_its_grace",
        ),
        (
            "the next workflow is taken while the last one has something to tell",
            "        if self._attempt:  # taking another workflow would forget it\n",
            "        if False:\n",
            f"{REFUSED_RESULTS}test_a_result_that_cannot_be_written_just_now_is_kept_and_nothing_else_is_taken",
        ),
        (
            "a loss that could not be told at once looks like a death",
            "        if self._attempt:  # lost, and",
            "        if False:  # lost, and",
            f"{REFUSALS}test_a_loss_that_could_not_be_told_at_once_is_told_before_the_next_claim",
        ),
    ),
    *_in(
        "worker/sessions.py",
        (
            "a worker claims on a server that is read-only",
            "        if is_read_only:",
            "        if False:",
            f"{UNFIT}test_a_read_only_server_is_waited_for",
        ),
        (
            "a worker works behind a pooler that lends backends",
            "    if not _is_one_backend_each(*sessions):",
            "    if False:",
            f"{UNFIT}test_a_worker_refuses_it_and_names_the_cause",
        ),
        (
            "a pool that lends its backends in turns is not found out",
            "return seen == {first} and other[1]",
            "return other[1]",
            f"{UNFIT}test_a_pool_that_lends_backends_is_found_out",
        ),
        (
            "a worker works without what it has asked for",
            "    if ignored:",
            "    if False:",
            f"{UNFIT}test_what_is_asked_for_and_not_in_force_is_named",
        ),
    ),
]

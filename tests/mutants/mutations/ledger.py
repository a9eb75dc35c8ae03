"""The ledger: calls, what is known of them, and the order in which it is written."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import DOUBTS, EFFECTS, FOLLOW_UPS, LEDGER, REMOVED_STEPS, UNDO, UNKNOWN_OUTCOMES

MUTANTS: list[Mutant] = [
    *in_(
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
            "what does not apply any more is followed up",
            "            if step.best_effort:  # no person",
            "            if False:  # no person",
            f"{FOLLOW_UPS}test_a_call_in_doubt_that_does_not_apply_any_more_is_not_followed_up",
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
    *in_(
        "effects.py",
        (
            "a thread of the step is given the key of the first generation",
            "if in_use := keys_in_use.get(workflow.pk):",
            "if in_use := keys_in_use.get(0):",
            f"{LEDGER}test_a_thread_of_the_step_is_given_the_key_of_its_generation",
        ),
        (
            "an undo is tried although its call had not happened",
            "MAY_HAVE_HAPPENED = (*IN_DOUBT, DONE)",
            "MAY_HAVE_HAPPENED = (*IN_DOUBT, DONE, NOT_DONE)",
            f"{UNDO}test_what_did_not_happen_is_not_undone",
        ),
    ),
]

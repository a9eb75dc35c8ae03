"""Calls in doubt: whether they happened is found out, or a person says so."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import DOUBTS, EFFECTS, LATE, LEDGER, REMOVED_STEPS, UNDO_IN_DOUBT

MUTANTS: list[Mutant] = [
    *in_(
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
            "",
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
]

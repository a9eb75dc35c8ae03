"""A run: the list of steps, what came of it, what is undone, and who died of it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import (
    APPROVAL,
    CANCELLATION_REQUESTS,
    DATABASE_ERRORS,
    EFFECTS,
    LATE,
    LEDGER,
    LOST_CLAIMS,
    OUTCOMES,
    POISON,
    REDACTION,
    REMOVED_STEPS,
    RETRIES,
    SESSIONS,
    SIGNALS_NOBODY_WAITS_FOR,
    UNDO,
    UNDO_IN_DOUBT,
    UNDO_QUESTIONS,
    WAKERS,
)

MUTANTS: list[Mutant] = [
    *in_(
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
    *in_(
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
            "    journal.require_claim(attempt)  # on a lost",
            "    pass  # on a lost",
            f"{LATE}test_what_it_was_told_after_it_had_lost_the_row_is_no_failure_of_the_step",
        ),
        (
            "the steps are given the row that is decided on",
            "self.workflow_copy = workflow.copy()",
            "self.workflow_copy = workflow",
            f"{OUTCOMES}test_what_a_step_does_to_its_workflow_changes_neither_the_row_nor_the_decision",
        ),
        (
            "the steps run outside a savepoint",
            "with journal.bind_attempt(attempt), session_of().savepoint():",
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
            "    journal.flush(attempt)\n    calls.vote()\n",
            "    calls.vote()\n",
            f"{LEDGER}test_twenty_once_steps_make_one_commit_each_and_one_more",
            f"{UNDO}test_it_undoes_in_reverse_order_and_fails_then",
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
            "    if step.best_effort:  # before",
            "    if False:  # before",
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
            "RESET ALL; ",
            "",
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
            "if not step.best_effort or transaction_is_broken() or _is_to_be_parked(step, workflow, error):",
            "if not step.best_effort:",
            f"{SESSIONS}test_no_step_runs_after_a_best_effort_step_has_lost_the_claim",
        ),
        # --- Whose an error of the database is ---
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
    *in_(
        "history.py",
        (
            "an attempt that is not to be seen is decided",
            "    if closed != 1:",
            "    if False:",
            f"{LOST_CLAIMS}test_nothing_is_decided_while_the_attempt_is_not_to_be_seen",
        ),
    ),
    *in_(
        "decisions.py",
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
    *in_(
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
    *in_(
        "poison.py",
        # --- Whose an error of the database is ---
        (
            "nobody is asked about what is lost for ever",
            "if (lost := _lost_by_itself(attempt)) and (",
            "if (lost := []) and (",
            f"{POISON}test_ten_losses_without_a_decision_ask_a_person",
        ),
        (
            "nobody is asked about a compensation that is lost for ever",
            "    if lost := _lost_by_itself(attempt):",
            "    if lost := []:",
            f"{POISON}test_a_compensation_that_is_lost_ten_times_asks_a_person_and_counts_no_failure_before",
        ),
        (
            "silence about what is lost is taken for an answer",
            "                withdraw(workflow, name)  # so that",
            "                pass  # so that",
            f"{POISON}test_nobodys_silence_fails_what_is_lost_it_is_tried_once_more_and_then_asked_about_again",
        ),
    ),
    *in_(
        "redaction.py",
        (
            "a value whose closing quote was cut off is told",
            "|(?<!\\w)['\"`].*",
            "",
            f"{REDACTION}test_it_masks_a_quoted_value_whose_end_was_cut_off",
        ),
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
            f"{REDACTION}test_an_error_that_python_words_in_another_way_may_quote_anything",
        ),
    ),
]

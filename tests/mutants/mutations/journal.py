"""What the journal writes: attempts, and only those of whoever holds the row."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_, unfenced
from tests.mutants.mutations.seen_by import (
    APPROVAL,
    CANCEL,
    DEATHS,
    EFFECTS,
    JOURNAL,
    LATE,
    LEDGER,
    POISON,
    REFUSALS,
    REFUSED_RESULTS,
    UNDO_QUESTIONS,
)

MUTANTS: list[Mutant] = [
    *in_(
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
        unfenced(
            "fence: opening an attempt",
            "\n         WHERE {FENCE}\n        ON CONFLICT",
            f"{LATE}test_it_opens_no_attempt_and_closes_none",
        ),
        unfenced(
            "fence: opening the first attempt",
            "%(release)s WHERE {FENCE}",
            f"{LATE}test_it_opens_no_first_attempt_either",
        ),
        (
            "a worker that finds the first attempt there is lost",
            " or execute(_OPEN, opened)\n",
            "\n",
            f"{JOURNAL}test_a_worker_that_lost_its_row_while_it_opened_an_attempt_is_in_nobodys_way",
        ),
        unfenced("fence: the proof itself", "SELECT {FENCE}", f"{LATE}test_it_looks_nothing_up"),
        (
            "two workers open the same attempt: the later one meets it as an error of the engine",
            "        ON CONFLICT (workflow_id, number) DO NOTHING\n        RETURNING id, number, ({_PAST})",
            "        RETURNING id, number, ({_PAST})",
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
            "a death that is recorded twice stands twice in the history",
            "AND e.kind = %(outcome)s)",
            "AND e.kind = %(outcome)s AND false)",
            f"{DEATHS}test_a_death_that_is_recorded_twice_is_one_line_of_the_history",
        ),
        (
            "a death that corrects what vanished is recorded beside it",
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
        # --- Whose an error of the database is ---
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
]

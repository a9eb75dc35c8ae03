"""Waits for a person, a signal or other workflows, from inside a step."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_, unfenced
from tests.mutants.mutations.seen_by import (
    ASKING_AGAIN,
    CHILDREN,
    COST_OF_WAITS,
    IN_FLIGHT,
    LATE,
    SIGNAL,
    SIGNAL_DEADLINES,
    SIGNALS,
    TAKING_BACK,
    WAKING,
)

MUTANTS: list[Mutant] = [
    *in_(
        "waits/wait.py",
        unfenced("fence: making a wait", "     WHERE {FENCE}\n    ON CONFLICT", f"{LATE}test_it_makes_no_wait"),
        unfenced(
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
    *in_(
        "waits/signal.py",
        unfenced("fence: using a signal up", "w.outcome = '' AND {FENCE}", f"{LATE}test_it_uses_no_signal_up"),
        unfenced(
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
            "                    AND closed_at IS NULL AND payload @> %(matching)s::jsonb\n"
            "                  ORDER BY workflow_id",
            "                    AND payload @> %(matching)s::jsonb\n                  ORDER BY workflow_id",
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
            "a wait finds its linking id's signals among all that are open",
            "(linking_id, name) >= (%(linking_id)s, wanted.name)\n"
            "                    AND (linking_id, name) <= (%(linking_id)s, wanted.name) AND",
            "linking_id = %(linking_id)s AND name = wanted.name AND",
            f"{COST_OF_WAITS}test_a_wait_reads_a_few_pages_however_many_signals_are_open",
        ),
        (
            "a wait finds the signals for its workflow among all that are open",
            "(workflow_id, name) >= (%(workflow_id)s, wanted.name)\n"
            "                    AND (workflow_id, name) <= (%(workflow_id)s, wanted.name)\n",
            "workflow_id = %(workflow_id)s AND name = wanted.name\n",
            f"{COST_OF_WAITS}test_a_wait_reads_a_few_pages_however_many_signals_are_open",
        ),
        (
            "a wait reads all the signals of its linking id",
            "ORDER BY linking_id, name, id LIMIT 1",
            "ORDER BY id LIMIT 1",
            f"{COST_OF_WAITS}test_a_wait_reads_a_few_pages_however_many_signals_are_open",
        ),
        (
            "a wait reads all the signals for its workflow",
            "ORDER BY workflow_id, name, id LIMIT 1",
            "ORDER BY id LIMIT 1",
            f"{COST_OF_WAITS}test_a_wait_reads_a_few_pages_however_many_signals_are_open",
        ),
        (
            "a signal of another name is taken, or of another linking id",
            "                    AND (linking_id, name) <= (%(linking_id)s, wanted.name) AND",
            "                    AND",
            f"{COST_OF_WAITS}test_a_signal_of_another_name_or_address_that_sorts_near_is_no_answer",
        ),
        (
            "a signal of another name is taken, or for another workflow",
            "                    AND (workflow_id, name) <= (%(workflow_id)s, wanted.name)\n",
            "",
            f"{COST_OF_WAITS}test_a_signal_of_another_name_or_address_that_sorts_near_is_no_answer",
        ),
        (
            "the last signal answers, and not the first",
            "ORDER BY id LIMIT 1),\n        answered",
            "ORDER BY id DESC LIMIT 1),\n        answered",
            f"{SIGNAL}test_of_several_names_the_first_to_come_answers",
        ),
    ),
    *in_(
        "waits/children.py",
        unfenced(
            "fence: closing the signal of the children's end",
            "closed_at IS NULL AND {FENCE}",
            f"{LATE}test_it_joins_no_children",
        ),
        unfenced(
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
            "            ON CONFLICT (parent_id, parent_wait, child_key) WHERE parent_id IS NOT NULL DO NOTHING\n",
            "",
            f"{CHILDREN}test_a_retried_parent_looks_anew_how_its_children_have_ended_and_starts_none_again",
        ),
    ),
    *in_(
        "waits/approval.py",
        unfenced("fence: recording a decision", "w.outcome = '' AND {FENCE}", f"{LATE}test_it_records_no_decision"),
        unfenced(
            "fence: closing a question whose time is over",
            "id = %(task_id)s AND state = 'open' AND {FENCE}",
            f"{LATE}test_it_closes_no_question",
        ),
        unfenced("fence: withdrawing a question", "NOT superseded AND {FENCE}", f"{LATE}test_it_withdraws_no_question"),
        (
            "an answer draws no number",
            ", call_number = nextval('workflows_effect_call_number')",
            "",
            f"{TAKING_BACK}test_a_no_whose_new_call_was_begun_stands_though_the_clock_was_set_back",
            f"{TAKING_BACK}test_what_was_called_before_the_answer_does_not_matter_whatever_the_clock_said",
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
]

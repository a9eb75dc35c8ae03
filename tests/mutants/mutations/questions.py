"""Questions to a person that answer themselves."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_, unfenced
from tests.mutants.mutations.seen_by import ANSWER_THEMSELVES, STAY

MUTANTS: list[Mutant] = [
    *in_(
        "compensation.py",
        (
            "what a person answers while it is looked up does not count",
            "        if not waits.withdraw_unanswered(self.workflow, question, even_claimed=result is not None):\n"
            "            return None\n",
            "        waits.withdraw_unanswered(self.workflow, question)\n",
            f"{ANSWER_THEMSELVES}test_what_a_person_answers_while_it_is_looked_up_counts",
        ),
        (
            "what was refused, and still stands, is undone again and again",
            "return effect.undo_unavailable >= PATIENCE and not waits.",
            "return not waits.",
            f"{ANSWER_THEMSELVES}test_what_was_refused_and_still_stands_stays_a_question",
        ),
        (
            "what failed for an outage alone stays a question",
            "return effect.undo_unavailable >= PATIENCE and not waits.was_withdrawn(self.workflow, _question(effect))",
            "return False",
            f"{ANSWER_THEMSELVES}test_what_failed_for_an_outage_alone_and_still_stands_is_undone_now",
            f"{ANSWER_THEMSELVES}test_when_the_service_is_back_it_is_looked_up_and_undone",
        ),
        (
            "nobody looks while a person is asked",
            "look_every=LOOK_EVERY if _may_answer_itself(step, effect) else None,",
            "look_every=None,",
            f"{ANSWER_THEMSELVES}test_it_is_looked_at_every_hour",
        ),
        (
            "a lookup that kills its workers is made every hour",
            "    if effect.error_code in (DEATHS_TASK_TYPE, LOSSES_TASK_TYPE):\n        return False\n",
            "",
            f"{ANSWER_THEMSELVES}test_what_killed_its_workers_is_not_looked_up",
            f"{STAY}test_what_has_killed_its_workers_is_not_looked_up_as_it_is_given_up",
        ),
        (
            "a lookup fails that finds the question's own suspension",
            "        self.attempt.suspended = None  # by the question; the lookup may not wait\n",
            "",
            f"{ANSWER_THEMSELVES}test_what_somebody_has_undone_meanwhile_is_found",
        ),
        (
            "a lookup that has swallowed a database error is believed",
            '        _ensure_sound(f"lookup of the undo of {step.name}")\n',
            "",
            f"{ANSWER_THEMSELVES}test_a_lookup_that_fails_changes_nothing",
        ),
        (
            "a lookup that opens the circuit does not park its workflow",
            "            calls.vote()  # if that opens the circuit, the workflow is parked\n            self.parking",
            "            self.parking",
            f"{ANSWER_THEMSELVES}test_a_lookup_whose_vote_opens_the_circuit_is_parked",
        ),
        (
            "what turns out to have happened is a question again, as if its undo had failed",
            "return doubts.settle(rows.set_undo_failures(effect, 0), found)",
            "return doubts.settle(effect, found)",
            f"{ANSWER_THEMSELVES}test_what_turns_out_to_have_happened_is_undone",
            f"{STAY}test_what_did_not_happen_is_undone_when_it_has_happened_after_a_retry",
        ),
        (
            "what a person answers while a call is looked up does not count",
            "            if not waits.withdraw_unanswered(self.workflow, question):\n                return None\n",
            "            waits.withdraw_unanswered(self.workflow, question)\n",
            f"{STAY}test_what_a_person_answers_while_a_call_is_looked_up_counts",
        ),
        (
            "a question is withdrawn as often as it is asked, and no person sees it",
            " and not waits.was_withdrawn(self.workflow, _question(effect))",
            "",
            f"{STAY}test_what_is_always_answered_with_an_outage_is_a_persons_question_at_last",
        ),
        (
            "why a lookup has failed is told to nobody",
            "self.attempt.steps[-1].update(describe(error, self.results))",
            "pass",
            f"{STAY}test_why_a_lookup_has_failed_is_told_with_the_attempt",
        ),
        (
            "what a person has claimed is undone meanwhile",
            "withdraw_unanswered(self.workflow, question, even_claimed=result is not None)",
            "withdraw_unanswered(self.workflow, question)",
            f"{STAY}test_what_a_person_has_claimed_is_not_undone_meanwhile",
        ),
        (
            "what a lookup returns fails as the engine's own statement",
            "        with journal.attribute_to_step(self.attempt):\n            result = found_by(",
            "        if True:\n            result = found_by(",
            f"{STAY}test_a_lookups_result_that_fails_as_it_is_read_changes_nothing",
        ),
    ),
    *in_(
        "decisions.py",
        (
            "a question whose service is down waits for no release",
            "transitions.suspend_for_answer(workflow.pk, suspend, parking=parking)",
            "transitions.suspend_for_answer(workflow.pk, suspend)",
            f"{ANSWER_THEMSELVES}test_while_the_service_is_down_it_is_parked_and_the_question_stays_open",
        ),
    ),
    *in_(
        "waits/approval.py",
        unfenced(
            "fence: withdrawing a question that has answered itself",
            "WHERE state = 'open' AND {FENCE} AND (%(even",
            "concurrency/test_late_writers.py::test_it_withdraws_no_question_that_has_answered_itself",
        ),
        (
            "an answer that was given is withdrawn",
            "WHERE state = 'open' AND {FENCE} AND (%(even",
            "WHERE {FENCE} AND (%(even",
            f"{ANSWER_THEMSELVES}test_what_a_person_answers_while_it_is_looked_up_counts",
        ),
    ),
    *in_(
        "effect_rows.py",
        (
            "what has just been given up is looked up, and kills one more worker",
            "error=line, error_code=code)",
            "error=line)",
            f"{STAY}test_what_has_killed_its_workers_is_not_looked_up_as_it_is_given_up",
        ),
    ),
    *in_(
        "doubts.py",
        (
            "an empty list closes the question about a charge that nobody has given back",
            "    if not isinstance(result, Mapping):\n",
            "    if False:\n",
            f"{STAY}test_what_is_no_mapping_closes_no_question",
        ),
        (
            "what a person says of a call while nothing is found of it is lost",
            "if found is None and self._is_answered(_doubt(effect)):",
            "if False:",
            f"{STAY}test_what_a_person_says_of_a_call_while_nothing_is_found_of_it_counts",
            f"{STAY}test_what_a_person_has_said_of_a_call_counts_though_a_new_release_finds_nothing",
        ),
        (
            "what is found is charged anew, for a person said that it did not happen",
            "if found is None and self._is_answered(",
            "if self._is_answered(",
            f"{STAY}test_what_is_found_of_a_call_counts_though_a_person_says_just_then_that_it_did_not_happen",
        ),
        (
            "each worker that starts has every open question looked up",
            " AND w.invisible_until > statement_timestamp() + %(look_every)s::interval",
            "",
            f"{STAY}test_a_worker_that_starts_leaves_alone_what_is_looked_at_within_the_hour",
        ),
        (
            "a release that can look a call up leaves the question to people",
            'questions = [(kind, f"effect:{name}") for kind, step, name in steps if step.lookup]',
            "questions: list[tuple[str, str]] = []",
            f"{ANSWER_THEMSELVES}test_a_release_that_can_look_a_call_up_asks_nobody_any_more",
        ),
        (
            "a release that can look an undo up leaves the question to people",
            'questions += [(kind, f"undo:{name}") for kind, step, name in steps if step.undo_lookup]',
            "pass",
            f"{ANSWER_THEMSELVES}test_a_release_that_can_look_an_undo_up_makes_it_due",
        ),
    ),
]

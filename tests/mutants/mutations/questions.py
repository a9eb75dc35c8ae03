"""Questions to a person that answer themselves."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_, unfenced
from tests.mutants.mutations.seen_by import ANSWER_THEMSELVES

MUTANTS: list[Mutant] = [
    *in_(
        "compensation.py",
        (
            "what a person answers while it is looked up does not count",
            "still_asked or not waits.withdraw_unanswered(self.workflow, _question(effect))",
            "still_asked",
            f"{ANSWER_THEMSELVES}test_what_a_person_answers_while_it_is_looked_up_counts",
        ),
        (
            "what was refused, and still stands, is undone again and again",
            "still_asked = result is None and effect.undo_unavailable < PATIENCE",
            "still_asked = False",
            f"{ANSWER_THEMSELVES}test_what_was_refused_and_still_stands_stays_a_question",
        ),
        (
            "what failed for an outage alone stays a question",
            "still_asked = result is None and effect.undo_unavailable < PATIENCE",
            "still_asked = result is None",
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
            "return rows.set_undo_failures(found, 0) if found.state == Effect.State.DONE else found",
            "return found",
            f"{ANSWER_THEMSELVES}test_what_turns_out_to_have_happened_is_undone",
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
            "WHERE state = 'open' AND {FENCE} AND wait_id",
            "concurrency/test_late_writers.py::test_it_withdraws_no_question_that_has_answered_itself",
        ),
        (
            "an answer that was given is withdrawn",
            "WHERE state = 'open' AND {FENCE} AND wait_id",
            "WHERE {FENCE} AND wait_id",
            f"{ANSWER_THEMSELVES}test_what_a_person_answers_while_it_is_looked_up_counts",
        ),
    ),
    *in_(
        "doubts.py",
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

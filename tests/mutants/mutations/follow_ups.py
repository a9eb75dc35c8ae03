"""Follow-ups: who is followed up, and what its workers may do to it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import AMONG_OTHERS, ATTACKED, FOLLOW_UPS, GIVEN_UP, RUN_AGAIN

MUTANTS: list[Mutant] = [
    *in_(
        "follow_ups.py",
        (
            "a follow-up is taken before its time",
            "WHERE f.queue = %s AND f.due_at <= now() AND",
            "WHERE f.queue = %s AND",
            f"{FOLLOW_UPS}test_what_was_let_go_is_done_later_once",
        ),
        (
            "a follow-up whose workflow another holds holds up the others",
            "FOR NO KEY UPDATE OF w SKIP LOCKED",
            "FOR NO KEY UPDATE OF w NOWAIT",
            f"{FOLLOW_UPS}test_one_whose_workflow_another_holds_is_passed_over",
        ),
        (
            "a follow-up that another worker has just decided is begun again",
            "return FollowUp.objects.get(pk=claim.id) if rows else None",
            "return FollowUp(id=claim.id, workflow=claim.workflow, step=claim.step)",
            f"{FOLLOW_UPS}test_one_that_another_worker_has_just_decided_is_not_begun",
        ),
        (
            "a worker that has lost the row puts the follow-up off",
            " AND due_at <= clock_timestamp() AND {FENCE} RETURNING id",
            " AND due_at <= clock_timestamp() AND ({FENCE} OR true) RETURNING id",
            f"{FOLLOW_UPS}test_a_claim_that_has_ended_begins_nothing",
        ),
        (
            "what is undone is followed up",
            "AND w.status = 'COMPLETE' AND w.workflow_type",
            "AND w.workflow_type",
            f"{FOLLOW_UPS}test_one_whose_workflow_is_undone_all_the_same_waits_until_it_is_complete",
        ),
        (
            "a follow-up of an unknown type is taken up",
            " AND w.workflow_type = ANY (%s)",
            " AND %s::text[] IS NOT NULL",
            f"{FOLLOW_UPS}test_one_of_a_type_that_this_release_does_not_know_is_left_to_another",
        ),
        (
            "workers die of a follow-up for ever",
            "    if follow_up.tries > MAX_TRIES:\n",
            "    if False:\n",
            f"{FOLLOW_UPS}test_what_no_worker_comes_to_the_end_of_is_tried_later_each_time_and_given_up",
        ),
        (
            "a follow-up that no worker comes to the end of is due at once",
            "%(first)s::float8 * 2 ^ least(tries, 10)",
            "0.0",
            f"{FOLLOW_UPS}test_what_no_worker_comes_to_the_end_of_is_tried_later_each_time_and_given_up",
        ),
        (
            "an earlier step's results are forgotten",
            "                results.resume(workflow.context)\n",
            "                pass\n",
            f"{FOLLOW_UPS}test_no_earlier_step_is_run_and_the_context_is_what_was_recorded",
        ),
        (
            "while a circuit is open a follow-up counts failures",
            "    if after_trial:\n",
            "    if False:\n",
            f"{FOLLOW_UPS}test_while_the_circuit_is_open_it_is_put_off_past_the_next_trial_and_counts_nothing",
        ),
        (
            "a refusal is followed up for as long as an outage",
            "gives_up = (is_failure and is_over) or not outcome.retryable",
            "gives_up = is_failure and is_over",
            f"{FOLLOW_UPS}test_a_refusal_gives_it_up_at_once",
        ),
        (
            "an outage has no patience",
            "unavailable >= max(policy.max_attempts, PATIENCE) if service",
            "unavailable >= policy.max_attempts if service",
            f"{FOLLOW_UPS}test_an_outage_has_its_patience_here_too",
        ),
        (
            "a step that this release does not have was run again",
            "if definition.find_step(follow_up.step) is None or not",
            "if not",
            f"{RUN_AGAIN}test_a_release_that_has_lost_the_step_since_leaves_it_to_one_that_has_it",
        ),
        (
            "a follow-up may wait",
            "    attempt.may_wait = False\n",
            "",
            f"{ATTACKED}test_what_it_may_not_wait_for_is_not_begun",
        ),
        (
            "that it is too early to tell is a failure of a follow-up",
            "is_failure = not isinstance(outcome.error, Unsettled)",
            "is_failure = True",
            f"{ATTACKED}test_a_call_in_doubt_is_looked_up_and_that_it_is_too_early_is_no_failure",
        ),
        (
            "in an outage each follow-up is looked at once a minute",
            "max(circuit.retry_at, circuit.now + (circuit.now - follow_up.created_at))",
            "circuit.retry_at",
            f"{AMONG_OTHERS}test_in_a_long_outage_it_is_looked_at_once_an_hour",
        ),
        (
            "a hold that a person has ended holds up the follow-ups",
            ", circuit.now + LONGEST)",
            ", circuit.now + LONGEST * 1000)",
            f"{AMONG_OTHERS}test_a_hold_that_ends_early_holds_it_up_for_an_hour_at_most",
        ),
        (
            "a context that this release cannot read is given up",
            "    except Exception as error:\n        why =",
            "    except ClaimLost as error:\n        why =",
            f"{AMONG_OTHERS}test_a_release_that_cannot_read_the_recorded_context_leaves_it_to_one_that_can",
        ),
    ),
    *in_(
        "executor.py",
        (
            "what was refused is followed up",
            "if step.follow_up and is_retryable(error):",
            "if step.follow_up:",
            f"{FOLLOW_UPS}test_what_is_refused_is_not_followed_up",
        ),
        (
            "a default that its model refuses cannot be read back",
            " and value != self.context_json.get(name)",
            "",
            f"{AMONG_OTHERS}test_a_default_that_its_own_model_refuses_is_no_reason_to_give_up",
        ),
    ),
    *in_(
        "operations/follow_ups.py",
        (
            "a step of a failed workflow is run by itself",
            "if workflow.status != Workflow.Status.COMPLETE:",
            "if False:",
            f"{RUN_AGAIN}test_of_a_failed_workflow_it_is_refused_for_a_retry_does_all_of_it",
        ),
        (
            "anybody may have a step run again",
            "    require(user, FOLLOW_UP)\n",
            "",
            f"{RUN_AGAIN}test_it_is_refused_without_the_permission",
        ),
        (
            "what has been done since is done again",
            "failed.pop(event.step, None)",
            "pass",
            f"{RUN_AGAIN}test_it_is_refused_when_it_has_been_done",
        ),
        (
            "a call in doubt that nothing can settle is begun",
            "and not _can_be_told(step, effect):",
            "and False:",
            f"{RUN_AGAIN}test_a_call_in_doubt_that_nothing_can_settle_is_not_begun",
        ),
    ),
    *in_(
        "needs_a_person.py",
        (
            "home counts follow-ups that are still to come as given up",
            "FollowUp.objects.filter(GIVEN_UP, ",
            "FollowUp.objects.filter(",
            f"{GIVEN_UP}test_home_counts_the_follow_ups_that_were_given_up_and_links_to_just_these",
        ),
    ),
    *in_(
        "worker/loop.py",
        (
            "a backlog lets no follow-up be done",
            "first = self._turns % FOLLOW_UP_EVERY == 0 and",
            "first = False and",
            f"{FOLLOW_UPS}test_a_worker_in_a_backlog_does_one_in_ten_turns",
        ),
        (
            "a worker for compensations follows up",
            "        if self._only:\n            return False\n",
            "",
            f"{FOLLOW_UPS}test_a_worker_for_compensations_alone_does_none",
        ),
    ),
]

"""What is parked, and its release."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import CHORES, PARKING, RELEASE, TRIALS

MUTANTS: list[Mutant] = [
    *in_(
        "outages/parking.py",
        (
            "what is parked is looked for so seldom that its cohorts are late",
            "rest=0.0 if services else UNTIL_PARKED",
            "rest=UNTIL_PARKED",
            f"{CHORES}test_who_looks_for_what_is_parked_rests_longer_where_nothing_is",
        ),
        (
            "an hour that ran out is no failure",
            "    is_over = not circuit.held_by and was_parked.exists()",
            "    is_over = False",
            f"{PARKING}test_one_whose_hour_has_run_out_counts_a_failure",
        ),
        (
            "a hold of two days fails workflows",
            "is_over = not circuit.held_by and was_parked.exists()",
            "is_over = was_parked.exists()",
            f"{PARKING}test_while_a_person_holds_the_service_no_hour_counts",
        ),
        (
            "a workflow that is tried again begins its hour anew",
            "since=None if is_over else workflow.parked_at",
            "since=None",
            f"{PARKING}test_a_workflow_that_is_tried_and_parked_again_has_one_event",
        ),
        (
            "what only needs the service comes before those that have failed at it",
            "longest = DAY if needs_only else HOUR",
            "longest = HOUR",
            f"{PARKING}test_a_step_is_not_begun_without_a_service_that_it_needs",
        ),
        (
            "workflows are released while nobody may call",
            "if service is None or (service.opened_at is not None and not circuits.is_trial_due(service)):",
            "if service is None:",
            f"{RELEASE}test_nothing_is_released_before_a_trial_is_due",
        ),
        (
            "the next cohort does not wait for the one before",
            "        if _is_too_soon(service) or _is_cohort_under_way(service):\n            return 0\n",
            "",
            f"{RELEASE}test_one_is_released_to_try_it_and_an_answer_lets_the_others_follow",
        ),
        (
            "a cohort that no worker takes up holds up the others for ever",
            ", invisible_until__gt=now - TAKEN_UP_WITHIN).exists()",
            ").exists()",
            f"{RELEASE}test_a_cohort_that_no_worker_takes_up_holds_up_the_others_for_a_minute",
        ),
        (
            "a trial that made no call leaves the circuit open",
            "if not circuits.was_released_to_try(service) or _is_undecided(service):",
            "if True:",
            f"{RELEASE}test_a_trial_that_ends_without_a_call_closes_it",
        ),
        (
            "bad payloads make all the trials",
            "if circuits.is_stubborn(service) and",
            "if False and",
            f"{TRIALS}test_bad_payloads_do_not_keep_a_circuit_open_for_days",
        ),
        (
            "a trial that no worker has taken up closes the circuit",
            "if not circuits.was_released_to_try(service) or _is_undecided(service):",
            "if not circuits.was_released_to_try(service):",
            f"{TRIALS}test_a_trial_that_no_worker_takes_up_says_nothing_and_another_one_is_made",
        ),
        (
            "a trial that no worker takes up keeps the circuit open for ever",
            "parked.filter(invisible_until__gte=service.released_at, invisible_until__lte",
            "parked.filter(invisible_until__lte",
            f"{TRIALS}test_a_trial_that_no_worker_takes_up_says_nothing_and_another_one_is_made",
        ),
        (
            "cohorts grow though calls fail",
            "return max(1, service.cohort * 7 // 8)",
            "pass",
            f"{RELEASE}test_a_cohort_is_an_eighth_smaller_after_a_call_in_vain_and_then_grows_slowly",
        ),
        (
            "cohorts go on doubling after a call in vain",
            "return min(LARGEST_COHORT, service.cohort * 9 // 8 + 1)",
            "pass",
            f"{RELEASE}test_a_cohort_is_an_eighth_smaller_after_a_call_in_vain_and_then_grows_slowly",
        ),
        (
            "the next cohort comes in the same second",
            "if _is_too_soon(service) or _is_cohort_under_way(service):",
            "if _is_cohort_under_way(service):",
            f"{RELEASE}test_a_cohort_is_spread_over_a_second_and_the_next_one_comes_after_it",
        ),
        (
            "the hour that another service was away counts",
            "    if workflow.parked_on != service:\n",
            "    if not workflow.parked_on:\n",
            f"{PARKING}test_one_that_is_parked_on_another_service_begins_its_hour_anew",
        ),
        (
            "a trial in earnest is made by two",
            "released = released or transitions.release_parked(",
            "released = transitions.release_parked(",
            f"{TRIALS}test_a_trial_in_earnest_is_made_by_one_alone",
        ),
        (
            "after a clock was set back no cohort is released",
            "return bool(now - PACE < service.released_at <= now)",
            "return bool(now - PACE < service.released_at)",
            f"{RELEASE}test_a_clock_that_was_set_back_holds_up_no_cohort",
        ),
        (
            "each cohort waits for the worker that comes by last",
            "due_since = now if service.opened_at is not None else now - JUST_DUE",
            "due_since = now",
            f"{RELEASE}test_the_next_cohort_does_not_wait_for_what_has_just_become_due_once_the_service_is_back",
        ),
    ),
]

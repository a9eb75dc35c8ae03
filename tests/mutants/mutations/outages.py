"""Outages: patience and circuits. (What is parked, and its release: parking.)"""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import (
    AROUND_CALLS,
    CALLS,
    CIRCUITS,
    LEASE,
    MANY_WORKERS,
    PARKING,
    RELEASE,
    TRANSITIONS,
    TRIALS,
)

MUTANTS: list[Mutant] = [
    *in_(
        "outages/calls.py",
        (
            "a step that ran out of time in a call has met nothing",
            "if isinstance(error, StepTimeout):",
            "if isinstance(error, ZeroDivisionError):",
            f"{CALLS}test_a_step_that_ran_out_of_time_in_a_call_met_it_unavailable",
        ),
        (
            "an error that is raised from another does not carry its service",
            "    for each in error_chain(error):\n        if name := getattr(each, _MARK",
            "    for each in [error]:\n        if name := getattr(each, _MARK",
            f"{CALLS}test_so_does_an_error_that_a_step_raises_from_it",
        ),
        (
            "a step's second call that is refused has not happened, nor has its first",
            "if in_use and in_use.called:",
            "if False:",
            f"{PARKING}test_unless_the_same_step_has_made_another_call_before",
        ),
        (
            "whoever comes calls a service whose circuit is open",
            "if self.is_open(service) and not self._may_try(service):",
            "if False:",
            f"{PARKING}test_three_workflows_open_the_circuit_and_the_next_one_makes_no_call",
        ),
        (
            "a trial is made before it is due",
            "        if monotonic() < self.known[service].trial_at:\n            return False\n",
            "",
            f"{PARKING}test_a_workflow_that_is_tried_and_parked_again_has_one_event",
            f"{PARKING}test_one_whose_hour_has_run_out_counts_a_failure",
        ),
        (
            "a worker's second call of a trial is none",
            "self.workflow.parked_on == service or service in self.trying",
            "self.workflow.parked_on == service",
            f"{RELEASE}test_a_worker_that_tries_it_may_call_it_twice_in_a_step",
        ),
        (
            "a step's time may be over in the midst of a transaction of the engine's",
            "with held_off(), journal.losing_the_claim()",
            "with journal.losing_the_claim()",
            f"{AROUND_CALLS}test_a_step_whose_time_is_over_as_it_asks_for_a_trial_loses_no_journal",
        ),
        (
            "a step's own threads call what they like, and nobody knows of it",
            "return _current.get() or (_all_at_work[0] if len(_all_at_work) == 1 else None)",
            "return _current.get()",
            f"{AROUND_CALLS}test_what_a_steps_own_thread_has_called_may_have_happened",
            f"{AROUND_CALLS}test_a_steps_own_thread_does_not_call_a_dead_service_either",
            f"{AROUND_CALLS}test_what_a_steps_own_thread_has_met_is_voted",
        ),
        (
            "a step's own thread opens a journal of its own for a trial",
            "        if get_ident() != self.thread:  # the journal is the worker's own\n            return False\n",
            "",
            f"{AROUND_CALLS}test_a_steps_own_thread_makes_no_trial_for_the_journal_is_the_workers",
        ),
        (
            "a service's name may be one that no row can hold",
            "    ensure_name(service)\n",
            "",
            f"{AROUND_CALLS}test_a_service_that_no_row_could_hold_is_an_error_of_the_steps",
        ),
        (
            "what only needs a service never tries it, though bad payloads keep its circuit open",
            "return is_due and self._take_trial(service, in_earnest=True)",
            "return False",
            f"{TRIALS}test_bad_payloads_do_not_keep_a_circuit_open_for_days",
        ),
        (
            "whoever needs a service tries it, and pays, as soon as the circuit is open",
            "(in_earnest and not circuits.is_stubborn(row, using=journal.ALIAS))",
            "False",
            f"{TRIALS}test_before_that_nobody_pays_to_try_it",
        ),
        (
            "all who need a service try it at once, and pay",
            "return is_due and self._take_trial(service, in_earnest=True)",
            "return is_due",
            f"{TRIALS}test_one_at_a_time_pays_to_try_it",
        ),
        (
            "a trial's outcome is dropped when the row is locked just then",
            "for _ in range(TRIES if self.is_open(service) else 1):",
            "for _ in range(1):",
            f"{TRIALS}test_the_outcome_of_a_trial_is_written_though_the_row_is_locked_just_then",
        ),
        (
            "what a service is needed for begins without it",
            "if worker and worker.is_open(service) and not worker.may_try_in_earnest(service):",
            "if False:",
            f"{PARKING}test_a_step_is_not_begun_without_a_service_that_it_needs",
        ),
        (
            "a vote is about one call, and not about all since the last one",
            "self.unvoted.get(service, Met()).plus(met)",
            "met",
            f"{MANY_WORKERS}test_what_comes_back_a_little_too_fast_opens_nothing",
        ),
        (
            "one bad payload makes suspects of those that come after it",
            "workflow_id=met.suspect)",
            "workflow_id=self.workflow.pk)",
            f"{MANY_WORKERS}test_one_bad_payload_makes_no_suspects_of_those_that_come_after_it",
        ),
        (
            "answers from before a circuit opened are the outcome of its trial",
            "if row.opened_at is None:  # else it is the outcome of a trial",
            "if True:",
            f"{MANY_WORKERS}test_what_was_answered_before_a_circuit_opened_is_not_the_outcome_of_its_trial",
        ),
        (
            "a worker that has voted keeps to itself that a released workflow has called in vain",
            "                    self._tell_the_release(service)\n",
            "                    pass\n",
            f"{RELEASE}test_the_release_is_told_of_each_call_in_vain_of_what_it_has_released",
        ),
    ),
    *in_(
        "outages/circuits.py",
        (
            "one bad payload opens a circuit",
            "        and len(service.suspects) == SUSPECTS\n",
            "",
            f"{CIRCUITS}test_what_does_not_open_it",
        ),
        (
            "one host's bad second opens a circuit",
            "        and service.since <= _now(service) - SPREAD\n",
            "",
            f"{CIRCUITS}test_what_does_not_open_it",
        ),
        (
            "five votes open a circuit, whatever the others say",
            "        and service.failed >= TO_ONE_ANSWER * service.answered\n",
            "",
            f"{CIRCUITS}test_what_does_not_open_it",
        ),
        (
            "a suspicion without answers ends",
            "(service.answered > 0 and service.since < now - WINDOW)",
            "service.since < now - WINDOW",
            f"{CIRCUITS}test_a_suspicion_without_answers_goes_on",
        ),
        (
            "a clock that was set back in a suspicion keeps a circuit closed",
            "    return service.since > now or (service",
            "    return (service",
            f"{CIRCUITS}test_a_suspicion_that_begins_later_than_now_is_begun_anew",
        ),
        (
            "an answer from before it opened closes a circuit",
            "        if is_trial_due(service):\n            _end_trial",
            "        if True:\n            _end_trial",
            f"{CIRCUITS}test_a_call_that_began_before_it_opened_says_nothing_new",
        ),
        (
            "two workers try it at once",
            "if not is_trial_due(service) or (service.trial_until and",
            "if not is_trial_due(service) or (False and",
            f"{CIRCUITS}test_one_worker_at_a_time_tries_it_and_only_when_it_is_due",
        ),
        (
            "a clock that was set back keeps a circuit open",
            "seconds <= 0 or (not held and seconds > 2 * LONGEST_COOL_OFF)",
            "seconds <= 0",
            f"{CIRCUITS}test_a_time_far_ahead_is_that_of_a_clock_which_was_set_back",
        ),
        (
            "a hold ends when it is longer than a cool-off",
            "seconds <= 0 or (not held and seconds > 2 * LONGEST_COOL_OFF)",
            "seconds <= 0 or seconds > 2 * LONGEST_COOL_OFF",
            f"{CIRCUITS}test_one_that_is_held_is_tried_when_the_hold_is_over",
        ),
        (
            "workers wait for a service's row",
            "select_for_update(skip_locked=not wait, no_key=True)",
            "select_for_update(no_key=True)",
            f"{RELEASE}test_no_worker_waits_for_a_services_row",
        ),
    ),
    *in_(
        "outages/circuits.py",
        (
            "patients pay to find out whether an outage is over that many have met",
            "failed[: SUSPECTS + 1].count() <= SUSPECTS",
            "failed[:SUSPECTS].count() <= SUSPECTS",
            f"{TRIALS}test_nor_does_anybody_pay_where_more_than_three_have_met_the_outage",
        ),
    ),
    *in_(
        "decisions.py",
        (
            "an outage is final after as many failures as the policy allows",
            "most = max(policy.max_attempts, PATIENCE) if service else policy.max_attempts",
            "most = policy.max_attempts",
            f"{PARKING}test_a_call_to_an_unavailable_service_is_retried_beyond_what_the_policy_allows",
        ),
        (
            "what has failed for an outage counts against the policy",
            "counted = failures.unavailable if service else failures.number - failures.unavailable",
            "counted = failures.number",
            f"{PARKING}test_what_it_has_failed_for_an_outage_is_none_of_what_the_policy_allows",
        ),
        (
            "to be parked is a failure",
            "is_failure = parking.is_over if parking else not",
            "is_failure = True if parking else not",
            f"{PARKING}test_three_workflows_open_the_circuit_and_the_next_one_makes_no_call",
        ),
        (
            "each time that it is parked is an event",
            "    if workflow.parked_on != parking.service:\n",
            "    if True:\n",
            f"{PARKING}test_a_workflow_that_is_tried_and_parked_again_has_one_event",
        ),
        (
            "an undo is not parked",
            "    if outcome.parking:\n",
            "    if False:\n",
            f"{PARKING}test_an_undo_is_parked_too_and_gets_its_person_after_as_many_hours",
        ),
    ),
    *in_(
        "compensation.py",
        (
            "an undo gets a person after three failures, though its service is down",
            "most = PATIENCE if unavailable else MAX_UNDO_FAILURES",
            "most = MAX_UNDO_FAILURES",
            f"{PARKING}test_an_undo_has_the_same_patience",
        ),
        (
            "an undo whose service never comes back gets nobody",
            " or effect.undo_unavailable >= PATIENCE",
            "",
            f"{PARKING}test_an_undo_whose_service_never_comes_back_gets_its_person",
        ),
    ),
    *in_(
        "executor.py",
        (
            "a best-effort step that parks is let go for an outage",
            "    return step.parks and is_retryable(error) and",
            "    return False and",
            f"{PARKING}test_a_best_effort_step_that_parks_is_not_let_go_for_an_outage",
        ),
        (
            "a best-effort step that parks is let go because its call may still be on its way",
            "(is_outage or isinstance(error, Unsettled))",
            "is_outage",
            f"{AROUND_CALLS}test_a_best_effort_step_that_parks_is_not_let_go_before_its_call_is_settled",
        ),
        (
            "a best-effort step that parks is never let go",
            "is_outage = bool(unavailable_service(error)) and not patience_is_over",
            "is_outage = bool(unavailable_service(error))",
            f"{PARKING}test_a_best_effort_step_that_parks_is_let_go_when_patience_is_over",
        ),
        (
            "a best-effort step that parks is not let go when its service refuses",
            "is_outage = bool(unavailable_service(error)) and not patience_is_over",
            "is_outage = not patience_is_over",
            f"{PARKING}test_a_best_effort_step_that_parks_is_let_go_for_what_is_no_outage",
        ),
    ),
    *in_(
        "worker/lease.py",
        (
            "a worker that is stopped as it votes keeps the others from voting",
            '    "idle_in_transaction_session_timeout": "10000",\n',
            "",
            f"{LEASE}test_a_journal_that_is_stopped_in_a_transaction_holds_its_locks_for_ten_seconds",
        ),
    ),
    *in_(
        "transitions.py",
        (
            "what was parked stays so, whatever becomes of it",
            '"parked_on": parking.service if parking else "",',
            '"parked_on": parking.service if parking else UNCHANGED,',
            f"{TRANSITIONS}test_whatever_the_row_was_before_the_schedule_is_whole",
        ),
    ),
]

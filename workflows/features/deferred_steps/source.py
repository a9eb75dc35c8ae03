"""DEFERRED STEPS: a best-effort step that failed runs later. Its workflow is COMPLETE, and stays so.

A worker takes one like a workflow: it locks the workflow's row, opens an attempt, and runs the one step with the same
ledger and keys. It writes the outcome only on the deferred step.

The step gets the recorded context. Earlier steps do not run again, because they would overwrite what the patient has
changed since. So a step that needs a token, which is never recorded, gets one itself. It may not wait.

The worker may die or lose the row, so the attempt log reschedules the step before it starts, each time for longer. Then
either a decision or a later try follows. After ten undecided tries the deferred step is given up.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Any

from django.db import transaction
from django.db.models import F

from workflows.definition import Step, definitions
from workflows.effects.ledger import Ledger
from workflows.engine import executor, retry_budget, step_session
from workflows.engine.backoff import Policy, delay_seconds
from workflows.engine.claim import Claim
from workflows.engine.extension import Source
from workflows.engine.outcomes import Complete, Failed, Outcome, WorkerStopping, failed_by_engine
from workflows.engine.results import Results
from workflows.engine.runner import finish_tries, run_in_savepoint
from workflows.errors import RetryableStepError, StepError, Suspend, is_busy, unavailable_service
from workflows.features.outages import circuits
from workflows.models import Attempt, Event, FollowUp, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.redaction import class_name
from workflows.sealing import payloads
from workflows.state import attempt_log, history
from workflows.state.attempt_log import FENCE, OpenAttempt
from workflows.state.boundary import MustStop
from workflows.state.transitions import Failures

logger = logging.getLogger(__name__)

# After so many undecided tries it is given up. The next try comes after 60 s, then twice as long each time.
MAX_TRIES = 10
FIRST_DELAY, LONGEST_DELAY = 60.0, 3600.0
LONGEST = timedelta(seconds=LONGEST_DELAY)
# The next try while its service has as many calls as its cap allows.
BUSY = timedelta(seconds=10)


def add(workflow: Workflow, step: Step) -> None:
    """Defer a step that failed, in the transaction that completes its workflow."""
    FollowUp.objects.bulk_create(
        [FollowUp(workflow=workflow, step=step.name, queue=workflow.queue, due_at=_policy(step, None).due_after(1))],
        ignore_conflicts=True,
    )


class DeferredSteps(Source):
    """The deferred steps of a queue. Keeps the one in hand from its claim to its decision."""

    def __init__(self, queue: str, reads: Sequence[str]) -> None:
        self._queue, self._reads = queue, reads
        self._in_hand: FollowUp

    def claim_next(self) -> Claim | None:
        """Lock the workflow whose deferred step has been due the longest, and reschedule the step in case of a crash.

        None when none is due, all are locked, or another worker has decided it.
        """
        found = claim_next(self._queue, self._reads)
        follow_up = begin(*found) if found else None
        if found is None or follow_up is None:
            return None
        self._in_hand = follow_up
        return found[0]

    def run(self, claim: Claim, attempt: OpenAttempt) -> Outcome:
        return run(self._in_hand, claim.workflow, attempt)

    def decide(self, claim: Claim, attempt: OpenAttempt, outcome: Outcome) -> Attempt.Outcome:
        return decide(self._in_hand, attempt, outcome)


def claim_next(queue: str, reads: Sequence[str] = ()) -> tuple[Claim, int] | None:
    """Lock the workflow whose deferred step has been due the longest, with that step's id; None when none is free."""
    reading = "".join(f", ({sql}) AS read_{number}" for number, sql in enumerate(reads))
    found: Any = Workflow.objects.raw(
        f"""SELECT w.*, f.id AS follow_up_id, pg_current_xact_id()::text AS xid{reading}
              FROM workflows_followup f JOIN workflows_workflow w ON w.id = f.workflow_id
             WHERE f.queue = %s AND f.due_at <= now() AND f.due_at IS NOT NULL
               AND w.status = 'COMPLETE' AND w.workflow_type = ANY (%s)
             ORDER BY f.due_at, f.id LIMIT 1 FOR NO KEY UPDATE OF w SKIP LOCKED""",  # noqa: S608 (ours)
        [queue, list(definitions())],
    )
    for row in found:
        values = [getattr(row, f"read_{number}") for number in range(len(reads))]
        return Claim(row, row.xid, False, inf, values, row.traceparent), row.follow_up_id
    return None


def begin(claim: Claim, follow_up_id: int) -> FollowUp | None:
    """Reschedule the deferred step on the attempt log, in case its worker dies. None if another has decided it."""
    rows = attempt_log.execute(
        f"""UPDATE workflows_followup
               SET tries = tries + 1,
                   due_at = clock_timestamp() + make_interval(secs => least(
                       %(longest)s::float8, %(first)s::float8 * 2 ^ least(tries, 10)))
             WHERE id = %(id)s AND due_at <= clock_timestamp() AND {FENCE} RETURNING id""",  # noqa: S608 (ours)
        {"id": follow_up_id, "first": FIRST_DELAY, "longest": LONGEST_DELAY, "claim_xid": claim.xid},
    )
    return FollowUp.objects.get(pk=follow_up_id) if rows else None


# --- Run ----------------------------------------------------------------------------------------------


def run(follow_up: FollowUp, workflow: Workflow, attempt: OpenAttempt) -> Complete | Failed | WorkerStopping:
    """Run the one step, in a savepoint of the claim's transaction. Raises ClaimLost when the claim is gone."""
    attempt.may_wait = False
    definition = definitions()[workflow.workflow_type]
    step = definition.find_or_removed_step(follow_up.step)
    if follow_up.tries > MAX_TRIES:
        error = StepError(f"{follow_up.tries - 1} workers started it, none finished it.", code="poison")
        return failed_by_engine(step, error)
    if definition.find_step(follow_up.step) is None or not (step.follow_up or follow_up.asked_by):
        error = _for_another_release(f"This release does not follow up {step.name}.", "step_undeclared")
        return failed_by_engine(step, error)
    if broken := step_session.find_broken(attempt.past, at=step.name):
        return failed_by_engine(step, step_session.failure_of(broken))
    payloads.open_for_steps(definition, workflow, strict=False)
    results = Results(definition, workflow, attempt)

    def run_step() -> None:
        attempt.boundary.before(step)
        _resume(results, workflow, attempt)
        executor.run_step(step, results, attempt, Ledger(definition, results.workflow_copy, attempt))
        step_session.reset(attempt)

    ended_by = run_in_savepoint(attempt, run_step, transaction.atomic())
    finish_tries(attempt, rolled_back=ended_by is not None)
    match ended_by:
        case None:
            return Complete({})
        case MustStop():
            return WorkerStopping({}, step)
        case Suspend():
            error = RetryableStepError(f"{step.name} may not wait when it is followed up: {ended_by}")
            return failed_by_engine(step, error)
    return executor.failed(step, ended_by, results)


def _resume(results: Results, workflow: Workflow, attempt: OpenAttempt) -> None:
    """Resume the recorded context. If this release cannot read it, raise a retryable error, which has no value."""
    try:
        with attempt_log.attribute_to_step(attempt):
            results.resume(workflow.context)
    except Exception as error:
        why = str(error) if isinstance(error, StepError) else class_name(error)
        raise _for_another_release(f"This release cannot read the context: {why}", "context_unreadable") from None


def _for_another_release(message: str, code: str) -> RetryableStepError:
    """An error that retries until another release is surely deployed: ten tries in eight hours."""
    return RetryableStepError(message, code=code, max_attempts=10, base_delay=600, max_delay=3600)


# --- Decide -------------------------------------------------------------------------------------------


def decide(follow_up: FollowUp, attempt: OpenAttempt, outcome: Outcome) -> Attempt.Outcome:
    """Write the outcome on the deferred step and in the history, and close the attempt. The workflow stays as it is."""
    error = None
    match outcome:
        case Complete():
            ended = _finish(follow_up, attempt)
        case WorkerStopping():
            FollowUp.objects.filter(pk=follow_up.pk).update(due_at=ClockTimestamp(), tries=F("tries") - 1)
            ended = Attempt.Outcome.RESCHEDULED
        case Failed():
            ended, error = _fail(follow_up, attempt, outcome), outcome.error
    history.close_attempt(attempt, ended, error)
    logger.info("workflow %s: the deferred step of %s ended as %s", attempt.workflow_id, follow_up.step, ended)
    return ended


def _finish(follow_up: FollowUp, attempt: OpenAttempt) -> Attempt.Outcome:
    follow_up.delete()
    history.record_in(attempt, Event.Kind.FOLLOWED_UP, follow_up.step)
    return Attempt.Outcome.FOLLOWED_UP


def _fail(follow_up: FollowUp, attempt: OpenAttempt, outcome: Failed) -> Attempt.Outcome:
    """Schedule the next try, or give the step up: its row then stays, without a time, for people to see."""
    service = unavailable_service(outcome.error)
    row = FollowUp.objects.filter(pk=follow_up.pk)
    after_trial = _after_trial(follow_up, service) if service else None
    if is_busy(outcome.error):
        row.update(due_at=ClockTimestamp() + BUSY, tries=0)
        return Attempt.Outcome.WAITING
    if after_trial:
        row.update(due_at=after_trial, tries=0)
        return Attempt.Outcome.WAITING
    policy = _policy(outcome.step, outcome.error)
    before = Failures(follow_up.failures + follow_up.unavailable, follow_up.unavailable)
    verdict = retry_budget.judge(outcome.error, before, allowed=policy.max_attempts)
    failures, gives_up = verdict.failures, verdict.is_over or not outcome.retryable
    row.update(
        due_at=None if gives_up else policy.due_after(max(failures.number, 1)),
        tries=0,
        failures=failures.number - failures.unavailable,
        unavailable=failures.unavailable,
    )
    history.record_in(
        attempt,
        Event.Kind.FOLLOW_UP_GIVEN_UP if gives_up else Event.Kind.FOLLOW_UP_FAILED,
        follow_up.step,
        **outcome.description,
    )
    return Attempt.Outcome.FOLLOW_UP_FAILED


def _after_trial(follow_up: FollowUp, service: str) -> datetime | None:
    """While the service's circuit is open: a time after its next trial, so that this is not the trial. Else None.

    The time is as far ahead as the deferred step is old, because each look is an attempt: one a minute would be 1,400
    in a day's outage. It is an hour ahead at most, because a person may end a hold early.
    """
    circuit: Any = circuits.find_open(service)
    if circuit is None or circuit.retry_at is None:
        return None
    ahead = min(max(circuit.retry_at, circuit.now + (circuit.now - follow_up.created_at)), circuit.now + LONGEST)
    later = delay_seconds(1, base_delay=circuit.cool_off, max_delay=circuits.LONGEST_COOL_OFF, jitter_factor=0.5)
    return ahead + timedelta(seconds=later)  # type: ignore[no-any-return]


def _policy(step: Step, error: BaseException | None) -> Policy:
    """The retry policy. What the error states overrides what the step states."""
    return retry_budget.policy_for(error, step.follow_up)

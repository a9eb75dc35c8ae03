"""RUN: one pass through a workflow's steps, from top to bottom, in one try (`workflows.engine.runner`)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from django.db import transaction

from workflows import authors
from workflows.definition import Step, WorkflowDefinition
from workflows.effects.ledger import Ledger, Result
from workflows.effects.reconcile import Unsettled
from workflows.engine import retry_budget, step_session
from workflows.engine.outcomes import Complete, Failed, RunOutcome, Waiting, WorkerStopping
from workflows.engine.results import Results, describe
from workflows.engine.retry_budget import OUTAGE_ATTEMPTS
from workflows.engine.runner import StepEntry, call_in_time, ensure_sound, finish_tries, run_in_savepoint
from workflows.errors import Braked, Suspend, WorkflowCancelled, is_busy, unavailable_service
from workflows.models import StepOutcome, Workflow
from workflows.postgres.jsonb import as_json
from workflows.postgres.round_trips import session_of
from workflows.state import attempt_log
from workflows.state.attempt_log import OpenAttempt
from workflows.state.boundary import MustStop
from workflows.timeouts import StepTimeout


def run(definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> RunOutcome:
    """Run every step in order and return the outcome. Adds what each step did to `attempt.steps`.

    The attempt's boundary decides before each step whether to go on: it may fail the workflow or leave it to another
    worker. Raises ClaimLost when the row is no longer ours; then nothing may be decided.
    """
    results = Results(definition, workflow, attempt)
    # A first attempt finds no calls. A later one may, even of steps that only an earlier release has.
    keeps_calls = attempt.number > 1 or definition.has_once_steps
    ledger = Ledger(definition, results.workflow_copy, attempt) if keeps_calls else None
    session, step = attempt.session or session_of(), definition.steps[0]

    def run_steps() -> None:
        nonlocal step
        for step in definition.steps:
            attempt.boundary.before(step)
            if step.best_effort:
                _run_best_effort(step, workflow, results, attempt, ledger)
            else:
                run_step(step, results, attempt, ledger)
            attempt.boundary.after()
        if ledger:
            ledger.reconciler.require_certainty(results.context)
        step_session.reset(attempt)

    ended_by = run_in_savepoint(attempt, run_steps, session.savepoint())
    finish_tries(attempt, rolled_back=ended_by is not None)
    match ended_by:
        case None:
            return Complete(results.context_json)
        case MustStop():
            return WorkerStopping(results.context_json, step)
        case Suspend():
            return Waiting(results.context_json, step, ended_by)
    return failed(step, ended_by, results)


def failed(step: Step, error: BaseException, results: Results) -> Failed:
    """The outcome of an attempt that ended with a step's error."""
    return Failed(results.context_json, step, error, retry_budget.is_passing(error), describe(error, results))


def _run_best_effort(
    step: Step, workflow: Workflow, results: Results, attempt: OpenAttempt, ledger: Ledger | None
) -> None:
    """Run a best-effort step and merge its result. If it fails, record that and go on."""
    try:
        run_step(step, results, attempt, ledger, transaction.atomic())
    except WorkflowCancelled:
        raise
    except (Exception, StepTimeout) as error:
        attempt_log.ensure_from_step(attempt, error)
        if step_session.is_broken(attempt) or _is_to_be_parked(step, workflow, error):
            raise
        entry = attempt.steps[-1]
        entry["outcome"] = StepOutcome.BEST_EFFORT_FAILED
        if step.follow_up and retry_budget.is_passing(error):
            entry["follow_up"] = True


def _is_to_be_parked(step: Step, workflow: Workflow, error: BaseException) -> bool:
    """Whether a failed best-effort step is retried or parked, not skipped, until patience runs out."""
    if isinstance(error, Braked) or is_busy(error):  # the step kills its worker; or a call will be free
        return True
    if not step.parks or not retry_budget.is_passing(error):
        return False
    # For some seconds nobody can know whether the call happened: that is no answer from the service either.
    if isinstance(error, Unsettled):
        return True
    verdict = retry_budget.judge(error, retry_budget.failures_in_a_row(workflow, step), allowed=OUTAGE_ATTEMPTS)
    return bool(unavailable_service(error)) and not verdict.is_over


def run_step(
    step: Step,
    results: Results,
    attempt: OpenAttempt,
    ledger: Ledger | None,
    savepoint: AbstractContextManager[None] | None = None,
) -> None:
    """Run one step, and merge its result. Raises the step's error, even if the step is best-effort."""
    entry: dict[str, Any] = {"step": step.name, "outcome": StepOutcome.FAILED}
    try:
        with StepEntry(entry, attempt, results):
            if savepoint is None:
                entry["outcome"] = _call(step, results, attempt, ledger)
            else:
                with savepoint:
                    entry["outcome"] = _call(step, results, attempt, ledger)
    except WorkflowCancelled:
        attempt.steps.pop()  # it was not started
        raise


def _call(step: Step, results: Results, attempt: OpenAttempt, ledger: Ledger | None) -> StepOutcome:
    """Call the step within its timeout, and merge what it returns."""
    seen, context, boundary = results.workflow_copy, results.context, attempt.boundary
    result: Result | None
    recorded_before = False
    if step.once and ledger:
        call = partial(call_in_time, step, attempt, step.function, workflow=seen, context=context)
        result, recorded_before = ledger.perform(step, context, call, lambda error: describe(error, results))
    else:
        if boundary.asked:
            boundary.require_free(step)
        if step.needs:
            boundary.require_available(step.needs)
        if attempt.held_back:
            attempt_log.flush(attempt)  # the call of a once step must be on the ledger before the next step runs
        result = call_in_time(step, attempt, step.function, workflow=seen, context=context)
    ensure_sound(step.name, attempt)
    if results.are_watched:
        authors.ensure_unchanged(step.name, (results.payload, results.context_json), (seen.payload, context))
    if step.best_effort:  # before the merge: if this fails, the step's writes are rolled back
        step_session.check_deferred_constraints(attempt)
    if result is not None and (type(result) is not dict or result):  # mostly there is none
        # A result may be lazy, and a context's model may query the database.
        with attempt_log.attribute_to_step(attempt):
            if result:
                # A result of a once step already has its JSON form.
                results.merge(step, result if step.once else as_json(result), recorded_before=recorded_before)
    if recorded_before:
        return StepOutcome.RECORDED
    if boundary.asked:
        boundary.passed(step)
    return StepOutcome.SKIPPED if result is None else StepOutcome.RAN

"""DECIDE: write the outcome of an attempt, after its savepoint was released or rolled back.

Everything is written in the claim's transaction: one COMMIT changes the row, adds the event, closes the attempt and
releases the row lock.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cache
from typing import Any

from django.conf import settings
from django.db.models import F
from pydantic_core import to_json

from workflows import waits
from workflows.definition import Step, WorkflowDefinition, definitions
from workflows.engine import compensation, reopening, retry_budget, undo_question
from workflows.engine.backoff import Policy
from workflows.engine.extension import Hooks
from workflows.engine.outcomes import (
    Compensated,
    Complete,
    Failed,
    Held,
    Outcome,
    Rescheduled,
    RunOutcome,
    StartAgain,
    UndoFailed,
    Waiting,
    WorkerStopping,
)
from workflows.engine.results import last_error
from workflows.errors import RetryableStepError, Suspend, WorkflowCancelled, signal_names
from workflows.models import Attempt, Event, StepOutcome, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.steps_on_record import as_recorded
from workflows.postgres.round_trips import session_of
from workflows.signals import store
from workflows.state import history, transitions
from workflows.state.attempt_log import OpenAttempt
from workflows.state.transitions import NOTHING, Awaited, Failures, Parking

logger = logging.getLogger(__name__)


def decide(workflow: Workflow, attempt: OpenAttempt, outcome: Outcome, hooks: Hooks) -> Attempt.Outcome:
    """Write the outcome: the row, once; the event; and, as the last statement, the end of the attempt.

    If every step has run, these are one statement, sent with the COMMIT.
    """
    error = None
    match outcome:
        case Complete():
            ended = _complete(workflow, attempt, outcome, hooks)
        case Waiting():
            ended = _suspend(workflow, attempt, outcome, hooks)
        case Failed(retryable=True):
            ended, error = _retry(workflow, attempt, outcome, hooks), outcome.error
        case Failed():
            ended, error = _fail(workflow, attempt, outcome, hooks), outcome.error
        case WorkerStopping():  # the row stays as it is: due, for the next worker
            history.record_in(attempt, Event.Kind.RESCHEDULED, outcome.step.name, reason="The worker was stopped.")
            ended = Attempt.Outcome.RESCHEDULED
        case Rescheduled():
            ended = _reschedule(workflow, attempt, outcome)
        case Held():
            ended = _hold(workflow, attempt, outcome, hooks)
        case Compensated():
            ended = _end_compensation(workflow, attempt, outcome, hooks)
        case StartAgain():
            ended = _start_again(workflow, attempt, outcome)
        case UndoFailed():
            ended, error = _retry_undo(workflow, attempt, outcome), outcome.error
    if not isinstance(outcome, Complete):  # its statement has closed the attempt
        history.close_attempt(attempt, ended, error)
    logger.info(
        "workflow %s (%s, key %s): attempt %s ended as %s%s",
        *(workflow.id, workflow.workflow_type, workflow.key, attempt.number, ended, _where(attempt)),
    )
    return ended


def _where(attempt: OpenAttempt) -> str:
    """The attempt's last step and, if that failed, its code or class; empty when no step has run."""
    if not attempt.steps:
        return ""
    last = attempt.steps[-1]
    error = last.get("error_code") or last.get("error_class")
    return f", at {last['step']}{f': {error}' if error else ''}"


def _complete(workflow: Workflow, attempt: OpenAttempt, outcome: Complete, hooks: Hooks) -> Attempt.Outcome:
    if attempt.number > 1:  # a first attempt has no open questions; maintenance ignores signals that came meanwhile
        compensation.close_pending_work(workflow)
    for entry in attempt.steps:
        if entry["outcome"] == StepOutcome.BEST_EFFORT_FAILED:
            error = {name: value for name, value in entry.items() if name.startswith("error_")}
            history.record_in(attempt, Event.Kind.BEST_EFFORT_FAILED, entry["step"], **error)
            for left_undone in hooks.left_undone:
                left_undone(workflow, entry)
    steps, definition = as_recorded(attempt.steps), definitions()[workflow.workflow_type]
    session = attempt.session or session_of()
    session.run_with_commit(
        _complete_sql(definition.secret_fields),
        {
            "workflow_id": workflow.id,
            "context": to_json(outcome.context).decode(),
            "attempt_id": attempt.id,
            "number": attempt.number,
            "steps_in_short": steps.in_short,
            "steps_in_full": to_json(steps.in_full).decode(),
        },
    )
    if "completed" in definition.publishes:
        session.send_early()
        hooks.tell(workflow, "completed")
    return Attempt.Outcome.COMPLETE


@cache
def _complete_sql(secret_fields: tuple[str, ...]) -> str:
    """The statement is sent with the COMMIT, and makes it fail if the row or the attempt is not visible."""
    return f"""
    WITH completed AS ({transitions.complete_sql(secret_fields)}),
    event AS (
        INSERT INTO workflows_event (workflow_id, kind, attempt, finished_xid)
        SELECT id, 'completed', %(number)s, pg_current_xact_id() FROM completed),
    closed AS (
        UPDATE workflows_attempt
           SET outcome = 'complete', closed_at = clock_timestamp(), closed_xid = pg_current_xact_id(), traceback = '',
               steps_in_short = %(steps_in_short)s, steps = %(steps_in_full)s
         WHERE id = %(attempt_id)s RETURNING id)
    SELECT 1 / ((SELECT count(*) FROM completed) * (SELECT count(*) FROM closed))"""  # noqa: S608 (ours)


def _suspend(workflow: Workflow, attempt: OpenAttempt, outcome: Waiting, hooks: Hooks) -> Attempt.Outcome:
    suspend, step = outcome.suspend, outcome.step.name
    transitions.suspend(workflow, suspend, step=step, extra_columns=_context(outcome))
    hooks.tell(workflow, "waiting")
    _record_waiting(workflow, attempt, step, suspend)
    return Attempt.Outcome.WAITING


def _record_waiting(workflow: Workflow, attempt: OpenAttempt, step: str, suspend: Suspend) -> None:
    """Record that the workflow waits, unless it waits for the same as before: after an early run, or its own look."""
    if (workflow.wake_on, workflow.waiting_for) == (suspend.wake_on, suspend.waiting_for):
        return
    history.record_in(
        attempt, Event.Kind.WAITING, step, waiting_for=suspend.waiting_for, until=suspend.until.isoformat()
    )


def _retry(workflow: Workflow, attempt: OpenAttempt, outcome: Failed, hooks: Hooks) -> Attempt.Outcome:
    """Reschedule or park the row; fail it if this step has failed once too often in a row."""
    step, policy, parking = outcome.step, _policy(workflow, outcome), hooks.find_parking(workflow, outcome.error)
    before = retry_budget.failures_in_a_row(workflow, step)
    verdict = retry_budget.judge(outcome.error, before, allowed=policy.max_attempts, parking=parking)
    failures = verdict.failures
    if verdict.is_over:
        return _fail(workflow, attempt, outcome, hooks, failures=failures)
    if parking:
        return _park(workflow, attempt, outcome, parking, failures)
    columns = _context(outcome) | last_error(outcome.description)
    transitions.schedule_retry(
        workflow.pk,
        policy.due_after(max(failures.number, 1)),
        woken_by=_woken_by(attempt, outcome.error),
        step=step.name,
        failures=failures,
        extra_columns=columns,
    )
    number: dict[str, Any] = {"failures": verdict.counted, "max_attempts": verdict.most} if verdict.counts else {}
    history.record_in(
        attempt, Event.Kind.RETRY_SCHEDULED, step.name, **number, invisible_until=_due(workflow), **outcome.description
    )
    return Attempt.Outcome.RETRY


def _park(
    workflow: Workflow, attempt: OpenAttempt, outcome: Failed, parking: Parking, failures: Failures
) -> Attempt.Outcome:
    """Park it. A workflow that was parked on this before, and was stopped untried, keeps its earlier error."""
    waits_on = workflow.parked_on == parking.service and parking.is_untried
    error = {} if waits_on else last_error(outcome.description)
    columns = _context(outcome) | error
    transitions.park(workflow.pk, parking, step=outcome.step.name, failures=failures, extra_columns=columns)
    return _end_parked(workflow, attempt, outcome.step, parking)


def _end_parked(workflow: Workflow, attempt: OpenAttempt, step: Step, parking: Parking) -> Attempt.Outcome:
    """Record one event, however often the workflow is tried and parked again."""
    if workflow.parked_on != parking.service:
        mend = {"mend": parking.mend} if parking.mend else {}
        history.record_in(attempt, Event.Kind.PARKED, step.name, service=parking.service, **mend)
    return Attempt.Outcome.WAITING


def _woken_by(attempt: OpenAttempt, error: BaseException) -> Awaited:
    """The signals that end a retry's back-off early: those that the error names and the attempt has not seen.

    A signal that the attempt has seen would wake the workflow in a hot loop. A name that no signal can have is left
    out: no row can store it, so the decision would fail for ever.
    """
    names: list[str] = []
    if isinstance(error, RetryableStepError):
        with suppress(Exception):  # a step's own error class may hold anything
            names = [name for name in signal_names(error.wake_on) if store.is_name(name)]
    if not names:
        return NOTHING
    return Awaited("", names, seen_until=attempt.snapshot)


def _policy(workflow: Workflow, outcome: Failed | UndoFailed) -> Policy:
    """Merge the policies: the error's comes before the step's, and that before the definition's."""
    definition: WorkflowDefinition = definitions()[workflow.workflow_type]
    return retry_budget.policy_for(outcome.error, outcome.step.retry, definition.retry)


def _due(workflow: Workflow) -> str:
    """The workflow's due time, which was computed in SQL."""
    due = Workflow.objects.values_list("invisible_until", flat=True).get(pk=workflow.pk)
    return due.isoformat()


def _fail(
    workflow: Workflow, attempt: OpenAttempt, outcome: Failed, hooks: Hooks, *, failures: Failures | None = None
) -> Attempt.Outcome:
    """Fail the workflow for good, or start its compensation. `failures` are those in a row, if the step had too many.

    A feature may park it instead, when the failure is not a verdict on this workflow; never a cancelled one.
    """
    before = Failures(workflow.retry_count, workflow.unavailable_count)
    step, error, is_cancelled = outcome.step, outcome.error, isinstance(outcome.error, WorkflowCancelled)
    parking = None
    if not is_cancelled:
        parking = hooks.park_instead(workflow, step.identity, error, outcome.description, judges=True)
    if parking:
        return _park(workflow, attempt, outcome, parking, retry_budget.failures_in_a_row(workflow, step))
    failures = failures or before
    compensates = compensation.fail_or_compensate(
        workflow,
        step=outcome.step.name,
        failures=failures,
        extra_columns={
            **_context(outcome),
            **last_error(outcome.description),
            "failed_release": settings.RELEASE,
            "cancelled_at": ClockTimestamp() if is_cancelled else None,
        },
    )
    if not compensates:
        hooks.tell(workflow, "failed")
    waits.supersede_failed(workflow.pk, outcome.error)
    _record_failure(workflow, attempt, outcome, failures, finishes=not compensates)
    if compensates:
        definition, code = definitions().get(workflow.workflow_type), outcome.description["error_code"]
        asks = {} if outcome.told else undo_question.mark(definition, outcome.error, code)
        history.record_in(attempt, Event.Kind.COMPENSATING, **asks)
    return Attempt.Outcome.FAILED


def _record_failure(
    workflow: Workflow, attempt: OpenAttempt, outcome: Failed, failures: Failures, *, finishes: bool
) -> None:
    """Record why it fails: a person cancelled it, with its children; a feature says so; or a step failed."""
    detail: dict[str, Any]
    if isinstance(cancelled := outcome.error, WorkflowCancelled):
        store.close_cancellations(workflow.pk)
        store.cancel_children(workflow.pk, by=cancelled.by, reason=cancelled.reason)
        detail = {"actor": cancelled.by, "reason": cancelled.reason}
        history.record_in(attempt, Event.Kind.CANCELLED, outcome.step.name, finishes=finishes, **detail)
    elif outcome.told:
        history.record_in(attempt, outcome.told.kind, finishes=finishes, **outcome.told.detail)
        if outcome.told.is_acknowledged:
            Workflow.objects.filter(pk=workflow.pk).update(acknowledged_failure=F("completed_at"))
    else:
        detail = {"failures": failures.number, **outcome.description}
        history.record_in(attempt, Event.Kind.FAILED, outcome.step.name, finishes=finishes, **detail)


def _end_compensation(workflow: Workflow, attempt: OpenAttempt, outcome: Compensated, hooks: Hooks) -> Attempt.Outcome:
    """The workflow becomes FAILED, and keeps the error that it failed with."""
    transitions.end_compensation(workflow)
    hooks.tell(workflow, "failed")
    compensation.close_pending_work(workflow)
    history.record_in(attempt, Event.Kind.COMPENSATED, finishes=True, undone=outcome.undone)
    return Attempt.Outcome.COMPENSATED


def _start_again(workflow: Workflow, attempt: OpenAttempt, outcome: StartAgain) -> Attempt.Outcome:
    """A person lets it be retried instead of undone. Nothing was undone yet, so every call is on record."""
    reopening.reopen(workflow)
    detail = {"actor": outcome.by, "reason": outcome.reason}
    history.record_in(attempt, Event.Kind.RETRIED, workflow.current_step, **detail)
    return Attempt.Outcome.RETRY


def _retry_undo(workflow: Workflow, attempt: OpenAttempt, outcome: UndoFailed) -> Attempt.Outcome:
    """Try the undo again later; at once if it has failed too often, because then a person is asked. The error stays."""
    step, verdict, policy = outcome.step, outcome.verdict, _policy(workflow, outcome)
    if outcome.parking:
        transitions.park(workflow.pk, outcome.parking)
        return _end_parked(workflow, attempt, step, outcome.parking)
    counted = verdict.counted if verdict.counts else 1
    transitions.reschedule(workflow.pk, transitions.AT_ONCE if verdict.is_over else policy.due_after(counted))
    if not verdict.counts:
        history.record_in(attempt, Event.Kind.RESCHEDULED, step.name, reason=outcome.description["error_message"])
        return Attempt.Outcome.RESCHEDULED
    history.record_in(
        attempt,
        Event.Kind.UNDO_FAILED,
        step.name,
        failures=verdict.counted,
        max_attempts=verdict.most,
        invisible_until=_due(workflow),
        **({"unclear": True} if outcome.unclear else {}),
        **outcome.description,
    )
    return Attempt.Outcome.RETRY


def _reschedule(workflow: Workflow, attempt: OpenAttempt, outcome: Rescheduled) -> Attempt.Outcome:
    """The workflow's workers keep dying or losing it: back off as a retry does, but count no failure of the step."""
    transitions.reschedule(workflow.pk, outcome.due)
    history.record_in(attempt, Event.Kind.RESCHEDULED, outcome.step, reason=outcome.reason)
    return Attempt.Outcome.RESCHEDULED


def _hold(workflow: Workflow, attempt: OpenAttempt, outcome: Held, hooks: Hooks) -> Attempt.Outcome:
    """Wait for a person or another workflow before going on. The row keeps its error and its count of failures."""
    transitions.suspend_for_answer(workflow, outcome.suspend, parking=outcome.parking)
    hooks.tell(workflow, "waiting")
    _record_waiting(workflow, attempt, outcome.step, outcome.suspend)
    return outcome.ended


def _context(outcome: RunOutcome) -> dict[str, Any]:
    """The column with a copy of the context, for people; empty when no step has run."""
    return {} if outcome.context is None else {"context": outcome.context}

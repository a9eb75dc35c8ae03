"""RUN: one pass through a workflow's steps, inside a savepoint of the claim's transaction.

The savepoint is what lets a failed attempt leave nothing behind and yet keep the row's lock. It is released, or rolled
back, before anything is decided: the row is updated outside it (docs/architecture.md, "Update after the release").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from psycopg.pq import TransactionStatus
from pydantic import ValidationError
from pydantic_core import to_json

from workflows import journal
from workflows.definition import Step, WorkflowDefinition, removed_step
from workflows.doubts import Unsettled
from workflows.errors import ClaimLost, RetryableStepError, StepError, Suspend, WorkflowCancelled
from workflows.journal import OpenAttempt
from workflows.ledger import Ledger, Result
from workflows.models import StepOutcome, Workflow
from workflows.outages import calls, unavailable_service
from workflows.outages.parking import PATIENCE
from workflows.postgres import session_settings, sqlstates
from workflows.postgres.jsonb import as_json, ensure_storable_soon
from workflows.postgres.round_trips import session_of
from workflows.redaction import class_name, field_errors, names_of_code, private_part, scrub, scrub_foreign
from workflows.timeouts import StepTimeout, call_within


@dataclass(frozen=True, slots=True)
class Complete:
    """Every step has run."""

    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Failed:
    """A step failed, for good or (a RetryableStepError, or what the database cannot do just now) for now.

    `description` is the error as it may be shown: its class, code and scrubbed message. `context` is None when no step
    ran: then the row keeps its context.
    """

    context: Mapping[str, Any] | None
    step: Step
    error: BaseException
    retryable: bool
    description: dict[str, str]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A step waits for something."""

    context: Mapping[str, Any]
    step: Step
    suspend: Suspend


@dataclass(frozen=True, slots=True)
class WorkerStopping:
    """The worker has to stop, and its grace is over: the workflow is left for another worker."""

    context: Mapping[str, Any]
    step: Step


# `context` is its copy for people, as JSON.
Outcome = Complete | Failed | Waiting | WorkerStopping


def run(
    definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt, *, may_begin: Callable[[Step], bool]
) -> Outcome:
    """Run every step in order and return the outcome. What each step did is added to `attempt.steps`.

    `may_begin` is called before each step: False leaves the workflow for another worker, and an error that it raises
    fails the workflow. Raises ClaimLost when the row is no longer ours: then nothing may be decided.
    """
    outcome = _run_steps(definition, workflow, attempt, may_begin)
    leave(attempt, rolled_back=not isinstance(outcome, Complete))
    return outcome


def leave(attempt: OpenAttempt, *, rolled_back: bool) -> None:
    """After the last step, or undo, of an attempt, before anything is decided: what the steps have left is written."""
    if rolled_back:
        let_go()
    journal.flush(attempt)
    calls.vote()


def _run_steps(
    definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt, may_begin: Callable[[Step], bool]
) -> Outcome:
    results = Results(definition, workflow, attempt)
    # An earlier release may have made calls of steps that this release does not have; a first attempt finds no calls.
    keeps_calls = attempt.number > 1 or any(step.once for step in definition.steps)
    ledger = Ledger(definition, results.workflow_copy, attempt) if keeps_calls else None
    step = definition.steps[0]
    try:
        with journal.bind_attempt(attempt), session_of().savepoint():
            for step in definition.steps:
                if not may_begin(step):
                    raise MustStop
                _run_step(step, workflow, results, attempt, ledger)
                calls.vote()
            if ledger:
                ledger.doubts.require_certainty(results.context)
            reset_session(attempt)
    except MustStop:
        return WorkerStopping(results.context_json, step)
    except Suspend as suspend:
        return Waiting(results.context_json, step, suspend)
    except ClaimLost:
        raise
    except BaseException as error:  # a step's SystemExit, too, is the step's failure and not the worker's
        return failed(step, error, results, attempt)
    return Complete(results.context_json)


def failed(step: Step, error: BaseException, results: Results, attempt: OpenAttempt) -> Failed:
    """The outcome of an attempt that a step's error has ended. Raises ClaimLost when the error is not the step's."""
    journal.ensure_from_step(attempt, error)
    journal.require_claim(attempt)  # on a lost connection any error looks like the step's own
    return Failed(results.context_json, step, error, is_retryable(error), describe(error, results))


class MustStop(Exception):
    """The worker has to stop: raised to leave the savepoint the way a failure does."""


def failed_before_any_step(definition: WorkflowDefinition | None, workflow: Workflow, error: StepError) -> Failed:
    """The outcome of a workflow that fails with `error` before any step of the attempt has run.

    `definition` is None for a type that this release does not know.
    """
    known = definition and (definition.find_step(workflow.current_step) or definition.steps[0])
    step = known or removed_step(workflow.current_step)
    return Failed(None, step, error, retryable=False, description=describe_engine_error(error))


class Results:
    """What the steps of this attempt returned, as JSON, and the context that is built from it.

    Results pass through JSON in the first attempt too, so that every attempt sees the same types: a UUID that a step
    returns as a string is a UUID where the context declares one.

    `workflow_copy` is the workflow as the steps see it. Whatever a step does to the copy, the decision is about the row
    that the worker holds, and errors are masked by the payload that was sent, and by what its waits have `told` the
    attempt. `context_json` is the context's copy for people.
    """

    def __init__(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> None:
        self.workflow_copy = workflow.copy()
        self.payload, self.public_fields, self.told = workflow.payload, definition.public_fields, attempt.told
        self.recorded: dict[str, Any] = {}
        self.context = definition.context_class()
        self.context_json: dict[str, Any] = self.context.model_dump(mode="json")

    def resume(self, recorded: Mapping[str, Any]) -> None:
        """Begin with the context as it was recorded. Raises StepError for one that this release cannot read.

        A field that is as no step has set it is left out: its type need not allow what it is without that.
        """
        known = {
            name: value
            for name, value in recorded.items()
            if name in type(self.context).model_fields and value != self.context_json.get(name)
        }
        self.merge(removed_step("the recorded context"), known)

    def merge(self, step: Step, result: Mapping[str, Any], *, recorded_before: bool = False) -> None:
        """Add a step's result, in its JSON form, whole or not at all. Raises StepError naming the step and its faults.

        A field that another release recorded, and this one does not know, is left out.
        """
        context_class = type(self.context)
        undeclared = sorted(result.keys() - context_class.model_fields.keys())
        if undeclared and not recorded_before:
            raise StepError(f"{step.name} returned {', '.join(undeclared)}: not declared in {context_class.__name__}.")
        recorded = self.recorded | {name: value for name, value in result.items() if name not in undeclared}
        try:
            context = context_class.model_validate_json(to_json(recorded))
        except ValidationError as error:
            raise StepError(
                f"{step.name} returned what {context_class.__name__} refuses: {field_errors(error)}"
            ) from None
        copy = context.model_dump(mode="json")
        ensure_storable_soon(copy)  # again, for the context's types may change a value: "nan" becomes a NaN
        self.recorded, self.context, self.context_json = recorded, context, copy


def _run_step(step: Step, workflow: Workflow, results: Results, attempt: OpenAttempt, ledger: Ledger | None) -> None:
    """Run one step and merge its result. The failure of a best-effort step is recorded, and the workflow goes on."""
    entry: dict[str, Any] = {"step": step.name, "outcome": StepOutcome.FAILED}
    try:
        with StepEntry(entry, attempt, results):
            if step.best_effort:
                with transaction.atomic():
                    entry["outcome"] = _call(step, workflow, results, attempt, ledger)
            else:
                entry["outcome"] = _call(step, workflow, results, attempt, ledger)
    except WorkflowCancelled:
        attempt.steps.pop()  # it was not begun
        raise
    except (Exception, StepTimeout) as error:
        journal.ensure_from_step(attempt, error)
        if not step.best_effort or transaction_is_broken() or _is_to_be_parked(step, workflow, error):
            raise
        entry["outcome"] = StepOutcome.BEST_EFFORT_FAILED
        if step.follow_up and is_retryable(error):
            entry["follow_up"] = True


def run_alone(step: Step, workflow: Workflow, results: Results, attempt: OpenAttempt, ledger: Ledger) -> None:
    """Run one step, and merge its result. Raises whatever it fails with, though it be best-effort."""
    entry: dict[str, Any] = {"step": step.name, "outcome": StepOutcome.FAILED}
    with StepEntry(entry, attempt, results):
        entry["outcome"] = _call(step, workflow, results, attempt, ledger)


def _is_to_be_parked(step: Step, workflow: Workflow, error: BaseException) -> bool:
    """Whether a best-effort step, though it may be passed over, is retried or parked: while there is patience."""
    patience_is_over = workflow.current_step in step.names and workflow.unavailable_count + 1 >= PATIENCE
    is_outage = bool(unavailable_service(error)) and not patience_is_over
    # Whether the call has happened cannot be told for some seconds: that is no answer of the service's either.
    return step.parks and is_retryable(error) and (is_outage or isinstance(error, Unsettled))


class StepEntry:
    """Wraps a step: adds `entry` to the attempt's steps, with how long it took and, for a failure, the description.

    The entry comes with the outcome of a failure, which the caller replaces when the step succeeds.
    """

    __slots__ = ("_attempt", "_entry", "_failed", "_results", "_started")

    def __init__(self, entry: dict[str, Any], attempt: OpenAttempt, results: Results) -> None:
        self._entry, self._attempt, self._results, self._failed = entry, attempt, results, entry["outcome"]

    def __enter__(self) -> None:
        self._attempt.steps.append(self._entry)
        self._started = monotonic()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Suspend):
            self._entry["outcome"] = StepOutcome.WAITING
        elif isinstance(error, Exception | StepTimeout):
            self._entry.update(describe(error, self._results), outcome=self._failed)
        self._entry["ms"] = round((monotonic() - self._started) * 1000, 1)


def _call(step: Step, workflow: Workflow, results: Results, attempt: OpenAttempt, ledger: Ledger | None) -> StepOutcome:
    """Call the step, within its time, and merge what it returns."""

    def call() -> Mapping[str, Any] | None:
        return call_in_time(
            step, attempt, lambda: step.function(workflow=results.workflow_copy, context=results.context)
        )

    result: Mapping[str, Any] | None
    recorded_before = False
    if not step.once:
        calls.require_available(step.needs)
    if step.once and ledger:
        result, recorded_before = ledger.perform(step, results.context, call, lambda error: describe(error, results))
    else:
        journal.flush(attempt)  # what a once step did is on the ledger before the next step runs
        result = call()
    if transaction_is_broken():
        # Without this error, the writes of the step, and of all steps before it, would be lost silently.
        raise StepError(f"{step.name} swallowed a database error; catch it around an atomic() of its own.")
    if step.best_effort:  # before its result is merged: what it has written is rolled back if they fail
        check_deferred_constraints(attempt)
    with journal.attribute_to_step(attempt):  # a result may be lazy, and a context's model may query the database
        if result:
            # A result from the ledger is in its JSON form already.
            results.merge(step, result if step.once else as_json(result), recorded_before=recorded_before)
    if recorded_before:
        return StepOutcome.RECORDED
    return StepOutcome.SKIPPED if result is None else StepOutcome.RAN


def call_in_time(step: Step, attempt: OpenAttempt, function: Callable[[], Result | None]) -> Result | None:
    """Call a step author's code within the step's time. A wait suspends the workflow, whatever the code catches."""
    attempt.on_call(step)
    with journal.attribute_to_step(attempt):
        result = call_within(step.timeout, function)
    if attempt.lost:
        raise attempt.lost
    if attempt.suspended:
        raise attempt.suspended  # a bare `except:` has swallowed it: without this, a person's no would have no effect
    return result


def check_deferred_constraints(attempt: OpenAttempt, also: str = "") -> None:
    """Check the deferred constraints now: one that failed at the COMMIT would undo the decision too, for ever.

    They are deferred again at once, for the steps that follow. A constraint that fails is the step's error. `also`: SQL
    to send along.
    """
    with journal.attribute_to_step(attempt), connection.cursor() as cursor:
        cursor.execute(f"SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED; {also}")


# What survives a rollback too: prepared statements, and advisory locks of the session.
_LET_GO = "DEALLOCATE ALL; SELECT pg_advisory_unlock_all()"
# What RESET ALL leaves: cursors WITH HOLD, who we are, temporary tables, and channels that are listened to.
_RESET = f"CLOSE ALL; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; DISCARD TEMP; UNLISTEN *; {_LET_GO}"


def reset_session(attempt: OpenAttempt) -> None:
    """After the last step, undo what a step did to the session: it would stay for the decision and the next workflows.

    As another role we could not write the decision, and would be lost again at each attempt, or could write it, and run
    the next workflow with the rights of that role. Where nothing was sent, there is nothing to check or to undo.
    """
    if not session_of().is_used:
        return
    check_deferred_constraints(attempt, also=_RESET + session_settings.again_sql(connection))
    session_of().forget_prepared()
    connection.ensure_timezone()  # Django's own setting; it queries the server only if the server's setting differs


def reset_after_hooks() -> None:
    """After the commit, undo what the on_commit hooks of steps did to the session: the next workflow would run with it.

    A session that they have left in a transaction, or that fails just then, is closed: the worker opens another one.
    """
    claim = connections[DEFAULT_DB_ALIAS]
    if claim.connection is None:
        return
    try:
        if not claim.autocommit or claim.connection.info.transaction_status != TransactionStatus.IDLE:
            claim.close()
            return
        with claim.cursor() as cursor:
            cursor.execute(_RESET + session_settings.again_sql(claim))
        session_of().forget_prepared()
        claim.ensure_timezone()
    except sqlstates.DATABASE_ERRORS:
        claim.close()


def let_go() -> None:
    """After steps that were rolled back, let go of what the rollback has left in the session."""
    with connection.cursor() as cursor:
        cursor.execute(_LET_GO)
    session_of().forget_prepared()


def transaction_is_broken() -> bool:
    """Whether the claim's transaction can only be rolled back: a failed statement, or a closed connection."""
    claim = connections[DEFAULT_DB_ALIAS]
    if claim.needs_rollback or claim.closed_in_transaction or claim.connection is None:
        return True
    return bool(claim.connection.pgconn.transaction_status != TransactionStatus.INTRANS)


def is_retryable(error: BaseException) -> bool:
    """Whether the step's error may pass with time. A MemoryError is the host's trouble, more often than a payload's."""
    return isinstance(error, RetryableStepError | StepTimeout | MemoryError) or sqlstates.is_transient(error)


def last_error(description: Mapping[str, str]) -> dict[str, str]:
    """The row's columns for a described error."""
    return {f"last_{name}": value for name, value in description.items()}


def describe_engine_error(error: StepError) -> dict[str, str]:
    """Describe an error of the engine's own, which holds no personal data."""
    return {"error_class": class_name(error), "error_code": error.code, "error_message": scrub(str(error))}


def describe(error: BaseException, results: Results) -> dict[str, str]:
    """Describe an error as it may be shown: its class, its code, and its message without personal data."""
    known = (private_part(results.payload, results.public_fields), results.recorded, results.told)
    try:
        text = str(error)
    except Exception:
        text = "(an error that cannot be printed)"
    if isinstance(error, sqlstates.DATABASE_ERRORS):
        text = text.partition("\n")[0]  # the lines that follow quote the row
    if isinstance(error, StepError):
        code, message = scrub(str(error.code)), scrub(text, *known)
    else:
        code, message = "", scrub_foreign(text, *known, names=names_of_code(error))
    # Cut to the length of their columns: a decision that cannot be written would be tried again for ever.
    return {"error_class": class_name(error)[:200], "error_code": code[:100], "error_message": message}

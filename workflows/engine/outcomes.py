"""OUTCOMES: the possible results of an attempt, as data; `engine.decide` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models.expressions import Combinable

from workflows.definition import Step, WorkflowDefinition, removed_step
from workflows.engine.results import describe_engine_error
from workflows.engine.retry_budget import Verdict, is_passing
from workflows.errors import StepError, Suspend
from workflows.models import Attempt, Event, Workflow
from workflows.state.transitions import Parking

# `context` is always a copy of the workflow's context for people, as JSON.


class Told(NamedTuple):
    """Why a feature fails a workflow: the event that is recorded in place of *failed*.

    `is_acknowledged`: nobody has to look at it. No person is asked before its calls are undone.
    """

    kind: Event.Kind
    detail: Mapping[str, Any]
    is_acknowledged: bool


@dataclass(frozen=True, slots=True)
class Complete:
    """Every step has run."""

    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Failed:
    """A step failed for good or, if `retryable`, for now: a RetryableStepError, or a passing trouble of the database.

    `description` is the error as it may be shown: class, code and scrubbed message. `context` is None when no step ran;
    the row then keeps its context. `told` is a feature's reason for the failure.
    """

    context: Mapping[str, Any] | None
    step: Step
    error: BaseException
    retryable: bool
    description: dict[str, str]
    told: Told | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A step waits for something."""

    context: Mapping[str, Any]
    step: Step
    suspend: Suspend


@dataclass(frozen=True, slots=True)
class Held:
    """The engine waits for a person's answer, or for another workflow of the same business key.

    `parking`: a lookup that may answer the question waits for its service.
    """

    step: str
    suspend: Suspend
    ended: Attempt.Outcome
    parking: Parking | None = None


@dataclass(frozen=True, slots=True)
class WorkerStopping:
    """The worker has to stop, and its grace is over: another worker will take the workflow."""

    context: Mapping[str, Any]
    step: Step


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """The next try is at `due`, for this `reason`."""

    due: Combinable
    reason: str
    step: str


@dataclass(frozen=True, slots=True)
class Compensated:
    """Nothing is left to undo. `undone` names the steps whose effects were undone, in that order."""

    undone: list[str]


@dataclass(frozen=True, slots=True)
class UndoFailed:
    """An undo failed, or the check whether there is something to undo.

    `description` is the error as it may be shown. If the undo has failed too often (`verdict`), a person is asked.
    `unclear`: nothing was undone, because nobody knows yet whether the call happened.
    """

    step: Step
    error: BaseException
    description: dict[str, str]
    verdict: Verdict
    parking: Parking | None = None
    unclear: bool = False


class StartAgain(BaseException):
    """A person lets the workflow be retried, not reversed. No Exception, because no reversal has failed."""

    def __init__(self, by: str, reason: str) -> None:
        super().__init__(by)
        self.by, self.reason = by, reason


RunOutcome = Complete | Failed | Waiting | WorkerStopping
PoisonOutcome = Failed | Rescheduled | Held
UndoOutcome = Compensated | UndoFailed | Held | WorkerStopping | StartAgain
Outcome = RunOutcome | PoisonOutcome | UndoOutcome


def failed_before_any_step(
    definition: WorkflowDefinition | None, workflow: Workflow, error: StepError, told: Told | None = None
) -> Failed:
    """The outcome of a workflow that fails with `error` before any step of the attempt has run.

    `definition` is None for a type that this release does not know.
    """
    known = definition and (definition.find_step(workflow.current_step) or definition.steps[0])
    return failed_by_engine(known or removed_step(workflow.current_step), error, told)


def failed_by_engine(step: Step, error: StepError, told: Told | None = None) -> Failed:
    """The outcome for an error of the engine, not of a step that ran."""
    return Failed(None, step, error, is_passing(error), describe_engine_error(error), told)

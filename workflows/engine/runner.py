"""RUNNER: one try at a step author's code: the steps of a workflow, an undo, or a deferred step.

A try runs in a savepoint of the claim's transaction. The savepoint is released or rolled back before anything is
decided, because the row is updated outside it (docs/internals/claim.md, "Update after the release").
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from time import monotonic
from typing import Any

from workflows import authors
from workflows.definition import Step
from workflows.effects.ledger import Result
from workflows.engine import step_session
from workflows.engine.results import Results, describe
from workflows.errors import ClaimLost, StepError, Suspend
from workflows.models import StepOutcome
from workflows.postgres.round_trips import session_of
from workflows.state import attempt_log
from workflows.state.attempt_log import OpenAttempt
from workflows.state.boundary import MustStop
from workflows.timeouts import StepTimeout, call_within


def run_in_savepoint(
    attempt: OpenAttempt, body: Callable[[], object], savepoint: AbstractContextManager[None]
) -> BaseException | None:
    """Run `body` in the savepoint. Returns what ended it: None, MustStop, the Suspend of a wait, or a step's error.

    Raises ClaimLost when the error is not the step's, or when the row is no longer ours; then nothing may be decided.
    """
    try:
        with savepoint:
            body()
    except (MustStop, Suspend) as stopped:
        return stopped
    except ClaimLost:
        raise
    except BaseException as error:  # even a SystemExit is the step's failure, not the worker's
        attempt_log.ensure_from_step(attempt, error)
        attempt_log.require_claim(attempt)  # on a lost connection any error looks like the step's own
        return error
    return None


def finish_tries(attempt: OpenAttempt, *, rolled_back: bool) -> None:
    """After the last try of an attempt, before the decision, write what its steps have left unwritten."""
    if rolled_back:
        step_session.let_go()
    attempt_log.flush(attempt)
    attempt.boundary.after()


def call_in_time(
    step: Step, attempt: OpenAttempt, function: Callable[..., Result | None], **arguments: Any
) -> Result | None:
    """Call a step author's code within the step's timeout. A wait suspends the workflow, whatever the code catches."""
    attempt.boundary.calling()
    error: BaseException | None = None
    try:  # as `attribute_to_step`, which takes three calls more
        result = call_within(step.timeout, partial(function, **arguments))
    except BaseException as raised:
        error = raised
        raise
    finally:
        attempt_log.step_code_ended(attempt, error)
    if attempt.lost:
        raise attempt.lost
    if attempt.suspended:
        raise attempt.suspended  # a bare `except:` has swallowed it; without this a person's "no" would have no effect
    return result


def ensure_sound(what: str, attempt: OpenAttempt) -> None:
    """Raise StepError if `what` has swallowed a database error, or broken its session (`step_session.guarded`).

    Otherwise its writes, and those of all steps before it, would be lost silently.
    """
    if (attempt.session or session_of()).is_broken():
        raise StepError(f"{what} ended the transaction, or swallowed a database error: catch that around an atomic().")


class StepEntry:
    """Wraps a step: adds `entry` to the attempt's steps, with its duration and, for a failure, the description.

    The entry starts with the outcome of a failure; the caller replaces it when the step succeeds.
    """

    __slots__ = ("_attempt", "_entry", "_failed", "_results", "_started")

    def __init__(self, entry: dict[str, Any], attempt: OpenAttempt, results: Results) -> None:
        self._entry, self._attempt, self._results, self._failed = entry, attempt, results, entry["outcome"]

    def __enter__(self) -> None:
        self._attempt.steps.append(self._entry)
        self._started = monotonic()
        self._attempt.steps_started_at.append(self._started)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._describe(error)
        self._entry["ms"] = int((monotonic() - self._started) * 10_000 + 0.5) / 10

    def _describe(self, error: BaseException) -> None:
        if isinstance(error, Suspend):
            self._entry["outcome"] = StepOutcome.WAITING
        elif isinstance(error, Exception | StepTimeout):
            self._entry.update(describe(error, self._results), outcome=self._failed)
            authors.tell(self._results.workflow_copy.key, self._attempt.number, self._entry["step"], error)

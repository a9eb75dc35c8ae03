"""RETRY BUDGET: how often a step, an undo or a deferred step may fail, and whether this failure is one too many.

Failures in a row at an unavailable service do not count against the policy: at least OUTAGE_ATTEMPTS of them are
allowed, because an outage fails no workflow. No failure counts at all if

- nobody knows yet whether a call has happened (`Unsettled`): else a step whose calls time out would make half the calls
  that its policy allows;
- the workflow is parked, unless its time there has run out.
"""

from __future__ import annotations

from typing import NamedTuple

from workflows.definition import Retry, Step
from workflows.effects.reconcile import Unsettled
from workflows.engine.backoff import Policy, merge_policies
from workflows.errors import RetryableStepError, unavailable_service
from workflows.models import Workflow
from workflows.postgres import sqlstates
from workflows.state.transitions import NONE, Failures, Parking
from workflows.timeouts import StepTimeout

# A failed call to an unavailable service is final only after so many: with the default delays that is three hours,
# longer than most outages; a payload that the service always answers with 500 fails then.
OUTAGE_ATTEMPTS = 45


class Verdict(NamedTuple):
    """What a failure means. `failures` are those in a row, with this one if it `counts`.

    `counted` are those of its kind, at a service that was unavailable or not, of which there may be fewer than `most`.
    """

    failures: Failures
    counts: bool
    counted: int
    most: int

    @property
    def is_over(self) -> bool:
        """It is one too many."""
        return self.counts and self.counted >= self.most


def judge(error: BaseException, before: Failures, *, allowed: int, parking: Parking | None = None) -> Verdict:
    """Judge a failure after those `before` it. `parking`: how the workflow is to be parked, if it is."""
    unavailable = bool(unavailable_service(error))
    counts = parking.is_over if parking else not isinstance(error, Unsettled)
    failures = Failures(before.number + counts, before.unavailable + (counts and unavailable))
    if unavailable:
        return Verdict(failures, counts, failures.unavailable, max(allowed, OUTAGE_ATTEMPTS))
    return Verdict(failures, counts, failures.number - failures.unavailable, allowed)


def is_spent(failures: Failures, *, allowed: int) -> bool:
    """Whether the last of these failures was one too many."""
    refused = failures.number - failures.unavailable
    return refused >= allowed or failures.unavailable >= max(allowed, OUTAGE_ATTEMPTS)


def failures_in_a_row(workflow: Workflow, step: Step) -> Failures:
    """Those of the step that the workflow's row counts: none, if it was another step that failed last."""
    if workflow.current_step not in step.names:
        return NONE
    return Failures(workflow.retry_count, workflow.unavailable_count)


def policy_for(error: BaseException | None, *stated: Retry | None) -> Policy:
    """What the error states beats what is `stated`, and of that the first the others."""
    return merge_policies(error if isinstance(error, RetryableStepError) else None, *stated)


def is_passing(error: BaseException) -> bool:
    """Whether the step's error may pass with time. A MemoryError is the host's trouble, more often than a payload's."""
    return isinstance(error, RetryableStepError | StepTimeout | MemoryError) or sqlstates.is_transient(error)

"""RETRY BUDGET: how often a step, an undo or a deferred step may fail, and whether this failure is one too many.

Failures in a row at an unavailable service have a budget of their own, of at least OUTAGE_ATTEMPTS, because an outage
should fail no workflow. A failure does not count at all if

- nobody knows yet whether a call has happened (`Unsettled`); otherwise a step whose calls time out would make half the
  calls that its policy allows;
- it parks the workflow, and the workflow's time to be parked has not run out.
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

# The budget of failures at an unavailable service. With the default delays it lasts three hours, longer than most
# outages. A payload that the service always answers with 500 fails after that.
OUTAGE_ATTEMPTS = 45


class Verdict(NamedTuple):
    """What a failure means. `failures` are those in a row, including this one if it `counts`.

    `counted` is how many of them are of its kind (service unavailable, or not). At `most` the step is given up.
    """

    failures: Failures
    counts: bool
    counted: int
    most: int

    @property
    def is_over(self) -> bool:
        """Whether this failure is one too many."""
        return self.counts and self.counted >= self.most


def judge(error: BaseException, before: Failures, *, allowed: int, parking: Parking | None = None) -> Verdict:
    """Judge a failure after the failures `before` it. `parking`: how the workflow would be parked, if it would."""
    unavailable = bool(unavailable_service(error))
    counts = parking.is_over if parking else not isinstance(error, Unsettled)
    failures = Failures(before.number + counts, before.unavailable + (counts and unavailable))
    if unavailable:
        return Verdict(failures, counts, failures.unavailable, max(allowed, OUTAGE_ATTEMPTS))
    return Verdict(failures, counts, failures.number - failures.unavailable, allowed)


def is_spent(failures: Failures, *, allowed: int) -> bool:
    """Whether the last of these failures was one too many."""
    ordinary = failures.number - failures.unavailable
    return ordinary >= allowed or failures.unavailable >= max(allowed, OUTAGE_ATTEMPTS)


def failures_in_a_row(workflow: Workflow, step: Step) -> Failures:
    """The step's failures in a row, and how many of them were at an unavailable service; NONE after another."""
    if workflow.current_step not in step.names:
        return NONE
    return Failures(workflow.retry_count, workflow.unavailable_count)


def policy_for(error: BaseException | None, *stated: Retry | None) -> Policy:
    """Merge the policies: the error's comes first, then those `stated`, in order."""
    return merge_policies(error if isinstance(error, RetryableStepError) else None, *stated)


def is_passing(error: BaseException) -> bool:
    """Whether the step's error may pass with time. A MemoryError is more often the host's fault than the payload's."""
    return isinstance(error, RetryableStepError | StepTimeout | MemoryError) or sqlstates.is_transient(error)

"""BOUNDARY of a worker: before each step it checks whether to go on, and publishes which step comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import monotonic

from workflows.definition import Step
from workflows.engine.claim import Claim
from workflows.engine.process_status import PublishedStatus
from workflows.errors import StepError, WorkflowCancelled, WorkflowExpired
from workflows.features.outages.brake import Steps, WorkersBrake
from workflows.features.outages.calls import WorkersCalls
from workflows.models import Workflow
from workflows.signals import store
from workflows.state.boundary import Boundary, MustStop

CHECK_EVERY = 1.0
# Seconds between the announcement of a step and its own code: the INTENT of its call is written in a few milliseconds.
LONG_FOR_THE_DATABASE = 1.0


class WorkersBoundary(Boundary):
    """The boundary of the attempt in hand; `of` says which. `beat` writes the worker's own row, once a second."""

    def __init__(
        self, status: PublishedStatus, calls: WorkersCalls, beat: Callable[[], None], must_stop: Callable[[], bool]
    ) -> None:
        self._status, self._calls, self._beat, self._must_stop = status, calls, beat, must_stop
        self._brake = WorkersBrake()
        self._workflow_id, self._heeds_requests, self._expires_at = 0, True, inf
        self._checked_at = -inf

    def of(self, claim: Claim, steps: Steps) -> WorkersBoundary:
        """For the steps of this workflow, which fill `steps`.

        Only the worker's own end interrupts a compensation, or a deferred step.
        """
        workflow = claim.workflow
        self._workflow_id = workflow.pk
        self._heeds_requests = workflow.status == Workflow.Status.PENDING and not workflow.compensating
        self._expires_at = monotonic() + claim.expires_in
        self._brake.of(workflow, claim.not_closed, steps)
        return self

    def before(self, step: Step) -> None:
        if self._must_stop():
            raise MustStop
        cancelled = self._check_cancellation()
        if self._heeds_requests and cancelled:
            raise cancelled
        if self._heeds_requests and monotonic() >= self._expires_at:
            raise WorkflowExpired
        now = monotonic()  # the supervisor knows which step comes, before the step can kill this process
        self._status.update(step=step.name, since=now, deadline=now + step.longest)
        self._beat()

    def _check_cancellation(self) -> WorkflowCancelled | None:
        """Read, at most once a second and on the claim, whether a person has asked to cancel the workflow.

        Using the claim keeps it from being silent, or shows that the server has ended it: a worker that was stopped,
        and goes on after its lease has ended, starts no further step.
        """
        if monotonic() < self._checked_at + CHECK_EVERY:
            return None
        self._checked_at = monotonic()
        return store.cancellation(self._workflow_id)

    def require_available(self, services: Sequence[str]) -> None:
        if services:
            self._calls.require_available(services)
            self._brake.require_free(services, needed=True)

    def let_fail(self) -> StepError | None:
        """The error of a workflow that people let fail, before any of its steps."""
        return self._brake.let_fail()

    def require_free(self, step: Step) -> None:
        if self._brake.known:  # mostly there is nothing to know, and each step asks
            self._brake.require_free(step.names)

    def passed(self, step: Step) -> None:
        if self._brake.known:
            self._brake.passed(step.names)

    def take_passes(self, step_name: str, code: str) -> Mapping[str, int]:
        return self._brake.take_passes(step_name, code)

    def calling(self) -> None:
        now, announced = monotonic(), self._status.now
        if now > announced.since + LONG_FOR_THE_DATABASE:
            self._status.update(since=now, deadline=now + announced.deadline - announced.since)

    def after(self) -> None:
        if self._calls.met:
            self._calls.vote()
        if self._brake.known:
            self._brake.vote()

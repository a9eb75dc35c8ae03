"""BOUNDARY of a worker: before each step it checks whether to go on, and publishes the next step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import monotonic

from workflows.definition import Step
from workflows.engine.claim import Claim
from workflows.engine.extension import Part, first
from workflows.engine.heartbeat import Heartbeat
from workflows.engine.process_status import PublishedStatus
from workflows.errors import StepError, WorkflowExpired
from workflows.models import Workflow
from workflows.postgres.round_trips import session_of
from workflows.signals import store
from workflows.state.attempt_log import OpenAttempt
from workflows.state.boundary import Boundary, MustStop

CHECK_EVERY = 1.0
# Seconds between the announcement of a step and its own code. Writing the INTENT takes only a few milliseconds.
LONG_FOR_THE_DATABASE = 1.0


class WorkersBoundary(Boundary):
    """The boundary of the current attempt, which `begin` sets. `beat` writes the worker's own row, if that is due."""

    def __init__(
        self,
        status: PublishedStatus,
        parts: Sequence[Part],
        heartbeat: Heartbeat,
        beat: Callable[[], None],
        must_stop: Callable[[], bool],
    ) -> None:
        self._status, self._parts, self._must_stop = status, parts, must_stop
        self._ending = [part for part in parts if type(part).end is not Part.end]
        self._heartbeat, self._beat = heartbeat, beat
        self.asked: list[Part] = []  # the parts that take part in this workflow's steps
        self._workflow_id, self._heeds_requests, self._expires_at = 0, True, inf
        self._checked_at = self._announced_at = -inf

    def begin(self, claim: Claim, attempt: OpenAttempt, caps: Mapping[str, int]) -> None:
        """Prepare for this workflow's steps. A compensation or deferred step ignores requests to cancel, and expiry."""
        workflow = claim.workflow
        self._workflow_id = workflow.id
        self._heeds_requests = workflow.status == Workflow.Status.PENDING and not workflow.compensating
        self._expires_at = monotonic() + claim.expires_in
        parts = zip(self._parts, claim.reads, strict=True)
        self.asked = [part for part, read in parts if part.begin(claim, read, attempt, caps)]

    def end(self) -> None:
        _end_all(self._ending)

    def before(self, step: Step) -> None:
        if self._must_stop():
            raise MustStop
        now = monotonic()
        if now >= self._checked_at + CHECK_EVERY:
            self._check_cancellation()
            now = monotonic()
        if self._heeds_requests and now >= self._expires_at:
            raise WorkflowExpired
        # Published first, because the step may kill this process.
        self._status.update(step=step.name, since=now, deadline=now + step.longest)
        self._announced_at = now
        if now >= self._heartbeat.due_at:
            self._beat()

    def _check_cancellation(self) -> None:
        """Read, at most once a second and on the claim, whether a person has asked to cancel the workflow; raise that.

        Using the claim keeps it from being silent, and shows if the server has ended it: a worker that was frozen past
        its lease starts no further step.
        """
        self._checked_at = monotonic()
        # As the engine's own: for anything else in the savepoint, `step_session.reset` drops all that is prepared.
        cancelled = store.cancellation(self._workflow_id, session_of().run)
        if self._heeds_requests and cancelled:
            raise cancelled

    def require_available(self, services: Sequence[str]) -> None:
        for part in self._parts:
            part.require_available(services)

    def let_fail(self, workflow: Workflow) -> StepError | None:
        """The error of a workflow that people let fail, before any of its steps."""
        return first(part.let_fail(workflow) for part in self.asked) if self.asked else None

    def require_free(self, step: Step) -> None:
        for part in self.asked:  # usually empty, and every step calls this
            part.require_free(step)

    def passed(self, step: Step) -> None:
        for part in self.asked:
            part.passed(step)

    def calling(self) -> None:
        now = monotonic()
        if now > self._announced_at + LONG_FOR_THE_DATABASE:
            announced = self._status.now
            self._status.update(since=now, deadline=now + announced.deadline - announced.since)

    def after(self) -> None:
        for part in self._parts:
            if part.news:
                part.after()


def _end_all(parts: Sequence[Part]) -> None:
    """Also those that follow one which raises."""
    for at, part in enumerate(parts, start=1):
        try:
            part.end()
        except BaseException:
            _end_all(parts[at:])
            raise

"""BRAKE: what a worker knows of the causes for which many workflows fail, and what it does about them.

Before a step it parks the workflow if the brake is on for the step and the worker's release; a workflow that was parked
on the cause, and was released, may try. After a failure that nobody explains it votes, and parks the workflow instead
of failing it if the brake is on. What passes a suspected step is counted, and written once a second.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from django.conf import settings

from workflows.definition import definitions
from workflows.errors import Braked, LetFail, mark_unavailable
from workflows.features.brake import causes
from workflows.features.outages import circuits
from workflows.features.outages.calls import VOTE_EVERY
from workflows.models import StepOutcome, Workflow
from workflows.models.failure import Cause
from workflows.redaction import frames
from workflows.state import attempt_log
from workflows.state.attempt_log import OpenAttempt

# Seconds. Nobody counts passes before a suspicion, which has to be weighed against something all the same: in full flow
# two in a hundred may well be five within a second.
JUST_NOW = 2.0
Steps = Sequence[Mapping[str, Any]]


NOTHING: Mapping[str, int] = {}


class KnownCause(NamedTuple):
    """A cause whose circuit is not closed, as the claim has read it; a trial is due at `trial_at`, by our clock."""

    name: str
    workflow_type: str
    step: str
    code: str
    is_on: bool  # for workers of this release
    trial_at: float
    let_fail_until: datetime | None  # what was parked by then is let fail
    let_fail_by: str
    let_fail_reason: str


class WorkersBrake:
    """The causes that a worker knows of, for the workflow that it has in hand."""

    def __init__(self) -> None:
        self.known: Sequence[KnownCause] = ()  # of the workflow's type
        self._passed: dict[str, Counter[str]] = {}  # by cause, how many of which client since the last vote
        self._tried: set[str] = set()
        # The last attempts: when they started, the type, the client, and what each step did.
        self._lately: deque[tuple[float, str, str, Steps]] = deque(maxlen=causes.LAST)
        self._voted_at = -inf
        self._workflow: Workflow | None = None

    def of(self, workflow: Workflow, not_closed: list[Any] | None, attempt: OpenAttempt) -> None:
        """Before the steps of a workflow: what its claim has read of the causes (`causes.NOT_CLOSED`)."""
        self._workflow = workflow
        self._lately.append((attempt.opened_at, workflow.workflow_type, workflow.submitted_by, attempt.steps))
        if not (not_closed or self.known or self._passed):  # mostly
            return
        known = [_known(*each) for each in not_closed or ()]
        names = {each.name for each in known}
        self._passed = {name: passed for name, passed in self._passed.items() if name in names}
        self.known = [each for each in known if each.workflow_type == workflow.workflow_type]

    def require_free(self, step_names: Iterable[str], *, needed: bool = False) -> None:
        """Raise Braked while the brake is on for the step of these names. `needed`: another step needs it."""
        for cause in self.known:
            if cause.is_on and cause.step in step_names and not self._may_try(cause):
                raise _braked(cause.name, needed=needed or not self._has_met(cause))

    def let_fail(self, workflow: Workflow) -> LetFail | None:
        """The error of a workflow that people let fail, instead of having it wait on."""
        for cause in self.known:
            until, parked_at = cause.let_fail_until, workflow.parked_at
            if workflow.parked_on == cause.name and until and parked_at and parked_at <= until:
                return LetFail(by=cause.let_fail_by, reason=cause.let_fail_reason, cause=cause.name)
        return None

    def _may_try(self, cause: KnownCause) -> bool:
        """Whether the workflow was released to try."""
        assert self._workflow is not None
        return self._workflow.parked_on == cause.name and monotonic() >= cause.trial_at

    def _has_met(self, cause: KnownCause) -> bool:
        workflow = self._workflow
        assert workflow is not None
        return workflow.parked_on == cause.name and cause.code in (
            workflow.last_error_code or workflow.last_error_class,
            causes.CRASHED,
        )

    def passed(self, step_names: Sequence[str]) -> None:
        """A step has run without failing."""
        assert self._workflow is not None
        for cause in self.known:
            if cause.step in step_names:
                self._passed.setdefault(cause.name, Counter())[self._workflow.submitted_by] += 1
                if self._workflow.parked_on == cause.name:
                    self._tried.add(cause.name)

    def take_passes(self, step_name: str, code: str) -> Mapping[str, int]:
        """How many of each client have passed a step at this worker, and are in no vote about this cause yet.

        Before the cause was suspected, those of the last attempts, if these were just now.
        """
        assert self._workflow is not None
        name = Cause(self._workflow.workflow_type, step_name, code).name
        if any(cause.name == name for cause in self.known):
            return self._passed.pop(name, {})
        workflow_type, since = self._workflow.workflow_type, monotonic() - JUST_NOW
        names = definitions()[workflow_type].find_or_removed_step(step_name).names
        return Counter(
            client
            for started_at, of_type, client, steps in self._lately
            if started_at >= since and of_type == workflow_type and _has_passed(names, steps)
        )

    def on_failure(
        self, workflow: Workflow, step: str, error: BaseException, description: Mapping[str, str], *, judges: bool
    ) -> Braked | None:
        """Vote for the cause of an unexplained failure. Returns what it is parked for if the brake is on, else None.

        `description` is the error as it may be shown. `judges`: without the brake the workflow fails for good now.
        """
        definition = definitions().get(workflow.workflow_type)
        if definition is None or not causes.is_unexplained(definition, error):
            return None
        code = description["error_code"] or description["error_class"]
        passes, trace = self.take_passes(step, code), frames(error)
        return _vote(workflow, step, code, release=settings.RELEASE, passes=passes, trace=trace, judges=judges)

    def vote(self) -> None:
        """Write what has passed: once a second at most, but a trial's outcome always. Raises ClaimLost."""
        if not self._passed or (monotonic() < self._voted_at + VOTE_EVERY and not self._tried):
            return
        for name, by_client in self._passed.items():
            with attempt_log.errors_lose_the_claim(), circuits.locked(name, using=attempt_log.ALIAS, wait=True) as row:
                assert row is not None
                limits, tried = definitions()[row.workflow_type].brake, name in self._tried
                causes.count_passes(row, by_client, release=settings.RELEASE, limits=limits, tried=tried)
        self._passed.clear()
        self._tried.clear()
        self._voted_at = monotonic()


def on_crash(workflow: Workflow, step: str, *, release: str) -> Braked | None:
    """Vote for the cause that a step has crashed its worker, of `release`. Returns what it is parked for, or None."""
    braked = _vote(workflow, step, causes.CRASHED, release=release)
    return braked if release == settings.RELEASE else None


def _vote(
    workflow: Workflow,
    step: str,
    code: str,
    *,
    release: str,
    passes: Mapping[str, int] = NOTHING,
    trace: str = "",
    judges: bool = False,
) -> Braked | None:
    """Vote on the attempt log, so that it outlives the attempt. It waits for the row: a verdict depends on it."""
    limits = definitions()[workflow.workflow_type].brake
    if not limits.failures:
        return None
    name = Cause(workflow.workflow_type, step, code).name
    with attempt_log.errors_lose_the_claim(), circuits.locked(name, using=attempt_log.ALIAS, wait=True) as row:
        assert row is not None
        row.workflow_type, row.step, row.code = workflow.workflow_type, step, code
        row.traceback = trace or row.traceback
        if passes:
            causes.count_passes(row, passes, release=release, limits=limits, tried=False)
        is_on = causes.count_failure(row, workflow, release=release, limits=limits)
        if judges and not is_on:
            row.judged = [*row.judged, workflow.pk][-causes.MOST_FAILURES :]
    return _braked(name, needed=False) if is_on else None


def _braked(cause: str, *, needed: bool) -> Braked:
    """`needed`: the workflow has not met the cause itself, so those that have make the trials."""
    error = Braked(f"Many workflows fail here: {cause}. This one waits until that is mended.", code=Braked.CODE)
    mark_unavailable(error, cause)
    error.needed = needed
    return error


def _has_passed(names: Sequence[str], steps: Steps) -> bool:
    return any(each["step"] in names and each["outcome"] in (StepOutcome.RAN, StepOutcome.SKIPPED) for each in steps)


def _known(
    name: str,
    is_open: bool,
    seconds: float | None,
    held: bool,
    workflow_type: str,
    step: str,
    code: str,
    releases: Sequence[str],
    until: str | None,
    by: str,
    reason: str,
) -> KnownCause:
    """A row of `causes.NOT_CLOSED`. Held by a person, a cause may concern all releases."""
    is_on = is_open and (not releases or settings.RELEASE in releases)
    wait = inf if seconds is None else 0.0 if circuits.is_over(seconds, held=held) else seconds
    let_fail_until = datetime.fromisoformat(until) if until else None
    return KnownCause(name, workflow_type, step, code, is_on, monotonic() + wait, let_fail_until, by, reason)

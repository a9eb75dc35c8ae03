"""Where outages take part in a claim: what the circuits say before a call, and the votes after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from workflows.definition import Step
from workflows.engine.claim import Claim
from workflows.engine.extension import Feature, Part
from workflows.engine.maintenance import Task
from workflows.errors import Braked, StepError
from workflows.features.outages import brake, causes, circuits, parking
from workflows.features.outages.brake import WorkersBrake
from workflows.features.outages.calls import WorkersCalls
from workflows.models import Workflow
from workflows.signals.waking import Slice
from workflows.state.attempt_log import OpenAttempt, PastAttempt
from workflows.state.transitions import Parking


class Outages(Feature):
    chores: ClassVar[Mapping[str, Task]] = {
        # A release batch a second, whichever worker comes by: with a second of rest each would be late by half of one.
        "release parked": Task(parking.release_parked, every=0.2),
        "forget causes": Task(lambda after: Slice(causes.forget_old()), every=60.0),
    }

    def at_worker(self) -> AtWorker:
        return AtWorker()


class AtWorker(Part):
    claim_reads: ClassVar[str] = circuits.NOT_CLOSED
    claim_leaves: ClassVar[str] = circuits.LEFT_TO_OTHERS

    def __init__(self) -> None:
        self._calls, self._brake = WorkersCalls(), WorkersBrake()

    def begin(self, claim: Claim, read: Any, attempt: OpenAttempt, caps: Mapping[str, int]) -> bool:
        self._calls.caps = caps
        self._calls.begin(claim.workflow, read, attempt)
        self._brake.of(claim.workflow, read, attempt.steps)
        return bool(self._brake.known)

    def end(self) -> None:
        self._calls.end()

    def let_fail(self, workflow: Workflow) -> StepError | None:
        return self._brake.let_fail(workflow)

    def require_free(self, step: Step) -> None:
        self._brake.require_free(step.names)

    def require_available(self, services: Sequence[str]) -> None:
        self._calls.require_available(services)
        self._brake.require_free(services, needed=True)

    def passed(self, step: Step) -> None:
        self._brake.passed(step.names)

    def after(self) -> None:
        if self._calls.met:
            self._calls.vote()
        if self._brake.known:
            self._brake.vote()

    def find_parking(self, workflow: Workflow, error: BaseException) -> Parking | None:
        on = parking.find_parking(workflow, error)
        return on._replace(is_untried=isinstance(error, Braked)) if on else None

    def park_instead(
        self, workflow: Workflow, step: str, error: BaseException, description: Mapping[str, str], *, judges: bool
    ) -> Parking | None:
        braked = self._brake.on_failure(workflow, step, error, description, judges=judges)
        return parking.find_parking(workflow, braked) if braked else None  # it has met the cause just now

    def crashed(self, workflow: Workflow, past: PastAttempt) -> Braked | None:
        return brake.on_crash(workflow, past.died_in, release=past.release)

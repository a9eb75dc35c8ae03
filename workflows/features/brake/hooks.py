"""Where the brake takes part in a claim: whether a step is free, what has passed it, and the vote of a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from workflows.definition import Step
from workflows.engine.claim import Claim
from workflows.engine.extension import Feature, Part
from workflows.engine.maintenance import Task
from workflows.errors import Braked, StepError
from workflows.features.brake import brake, causes, release
from workflows.features.brake.brake import WorkersBrake
from workflows.models import Workflow
from workflows.signals.waking import Slice
from workflows.state.attempt_log import OpenAttempt, PastAttempt
from workflows.state.transitions import Parking


class Brake(Feature):
    chores: ClassVar[Mapping[str, Task]] = {
        "release braked": Task(release.release_braked, every=0.2),  # as often as "release parked"
        "forget causes": Task(lambda after: Slice(causes.forget_old()), every=60.0),
    }

    def at_worker(self) -> AtWorker:
        return AtWorker()


class AtWorker(Part):
    claim_reads: ClassVar[str] = causes.NOT_CLOSED
    claim_leaves: ClassVar[str] = causes.LEFT_TO_OTHERS

    def __init__(self) -> None:
        self._brake = WorkersBrake()

    def begin(self, claim: Claim, read: Any, attempt: OpenAttempt, caps: Mapping[str, int]) -> bool:
        self._brake.of(claim.workflow, read, attempt)
        self.news = self._brake.known
        return bool(self._brake.known)

    def let_fail(self, workflow: Workflow) -> StepError | None:
        return self._brake.let_fail(workflow)

    def require_free(self, step: Step) -> None:
        self._brake.require_free(step.names)

    def require_available(self, services: Sequence[str]) -> None:
        self._brake.require_free(services, needed=True)

    def passed(self, step: Step) -> None:
        self._brake.passed(step.names)

    def after(self) -> None:
        self._brake.vote()

    def find_parking(self, workflow: Workflow, error: BaseException) -> Parking | None:
        on = release.find_parking(workflow, error)
        return on._replace(is_untried=isinstance(error, Braked)) if on else None

    def park_instead(
        self, workflow: Workflow, step: str, error: BaseException, description: Mapping[str, str], *, judges: bool
    ) -> Parking | None:
        braked = self._brake.on_failure(workflow, step, error, description, judges=judges)
        return release.find_parking(workflow, braked) if braked else None  # it has met the cause just now

    def crashed(self, workflow: Workflow, past: PastAttempt) -> Braked | None:
        return brake.on_crash(workflow, past.died_in, release=past.release)

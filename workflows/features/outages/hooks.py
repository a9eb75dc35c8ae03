"""Where outages take part in a claim: what the circuits say before a call, and the votes after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from workflows.engine.claim import Claim
from workflows.engine.extension import Feature, Part
from workflows.engine.maintenance import Task
from workflows.features.outages import circuits, parking
from workflows.features.outages.calls import WorkersCalls
from workflows.models import Workflow
from workflows.state.attempt_log import OpenAttempt
from workflows.state.transitions import Parking


class Outages(Feature):
    chores: ClassVar[Mapping[str, Task]] = {
        # A release batch a second, whichever worker comes by: with a second of rest each would be late by half of one.
        "release parked": Task(parking.release_parked, every=0.2),
    }

    def at_worker(self) -> AtWorker:
        return AtWorker()


class AtWorker(Part):
    claim_reads: ClassVar[str] = circuits.NOT_CLOSED

    def __init__(self) -> None:
        self._calls = WorkersCalls()
        self.news = self._calls.met

    def begin(self, claim: Claim, read: Any, attempt: OpenAttempt, caps: Mapping[str, int]) -> bool:
        self._calls.caps = caps
        self._calls.begin(claim.workflow, read, attempt)
        return False

    def end(self) -> None:
        self._calls.end()

    def require_available(self, services: Sequence[str]) -> None:
        self._calls.require_available(services)

    def after(self) -> None:
        self._calls.vote()

    def find_parking(self, workflow: Workflow, error: BaseException) -> Parking | None:
        return parking.find_parking(workflow, error)

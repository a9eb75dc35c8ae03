"""What `/metrics` says of the steps where many fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from workflows.health.families import Family

if TYPE_CHECKING:
    from workflows.features.outages.health import Standing

_CAUSE = ("workflow_type", "step", "code")


def of_causes(causes: Sequence[Standing]) -> Iterator[Family]:
    found = [([getattr(each.service, label) for label in _CAUSE], each) for each in causes]
    yield Family(
        "onramp_brake_on",
        "1: many fail at the step, and further workflows are parked; 0: no more.",
        _CAUSE,
        [(labels, float(not each.is_called)) for labels, each in found],
    )
    yield Family(
        "onramp_brake_parked_workflows",
        "Workflows that wait for the mend.",
        _CAUSE,
        [(labels, each.parked.number) for labels, each in found],
    )
    yield Family(
        "onramp_brake_failed_workflows",
        "Those that failed before, 50 at most.",
        _CAUSE,
        [(labels, len(each.service.judged)) for labels, each in found],
    )

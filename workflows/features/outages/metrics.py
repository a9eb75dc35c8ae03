"""What `/metrics` says of services."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from workflows.health.families import Family

if TYPE_CHECKING:
    from workflows.features.outages.health import Standing


def of_services(services: Sequence[Standing]) -> Iterator[Family]:
    yield Family(
        "onramp_service_called",
        "1: a service that workers have met unavailable is called as usual; 0: its circuit is not closed.",
        ["service"],
        [([each.pk], float(each.is_called)) for each in services],
    )
    yield Family(
        "onramp_parked_workflows",
        "Workflows that wait for a service.",
        ["service"],
        [([each.pk], each.parked.number) for each in services],
    )

"""The metrics of events that others have not received."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from workflows.health.families import Family
from workflows.health.reasons import seconds

if TYPE_CHECKING:
    from workflows.features.outbox.health import Standing


def families(destinations: Sequence[Standing], at: datetime) -> Iterator[Family]:
    labels, found = ["destination"], [([each.name], each) for each in destinations]
    yield Family(
        "onramp_outbox_waiting_events",
        "Events that a destination is still to be told.",
        labels,
        [(of, each.waiting.number) for of, each in found],
    )
    yield Family(
        "onramp_outbox_oldest_seconds",
        "How long the oldest of them has waited; 0: none.",
        labels,
        [(of, seconds(each.oldest, at)) for of, each in found],
    )
    yield Family(
        "onramp_outbox_given_up_events",
        "Events that could not be sent for days, and that nobody has redelivered or discarded.",
        labels,
        [(of, each.given_up.number) for of, each in found],
    )

"""The metrics of holds, paces and caps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from workflows.health.families import Family

if TYPE_CHECKING:
    from workflows.features.pace.health import PaceStanding


def families(paces: Sequence[PaceStanding]) -> Iterator[Family]:
    labels, found = ("scope", "name"), [((each.key.scope, each.key.name), each) for each in paces]
    yield Family(
        "onramp_held_seconds",
        "How long a queue or type is still held, so that nothing of it begins.",
        labels,
        [
            (of, (each.pace.held_until - each.now).total_seconds())
            for of, each in found
            if each.is_held and each.pace.held_until
        ],
    )
    yield Family(
        "onramp_pace",
        "How many of a queue or type begin in a second at most, as a user set it.",
        labels,
        [(of, each.pace.per_second) for of, each in found if each.pace.per_second],
    )
    yield Family(
        "onramp_cap",
        "How many of a queue, type or tenant run at a time at most, as a user set it.",
        labels,
        [(of, each.pace.at_once) for of, each in found if each.pace.at_once],
    )

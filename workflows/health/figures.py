"""FIGURES: what a feature has read at one moment, for Home, its sentence and Prometheus."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from workflows.health.families import Family, Histogram, Section
from workflows.health.reasons import About, Reason
from workflows.health.side_processes import Unattended

if TYPE_CHECKING:
    from django.contrib.auth.models import User

Place = TypeVar("Place", bound=IntEnum)
Told = TypeVar("Told")


class Figures:
    """A feature's part of `Counts`. It has been read already, so that its users need not read again."""

    # Names that a consumer or a relay should take.
    wanted: Sequence[Unattended] = ()

    @property
    def held(self) -> Collection[str]:
        """The queues and types in which nothing starts, as `queue:slow`: what is due there waits for no worker."""
        return ()

    def reasons(self, at: datetime) -> Mapping[About, Iterable[Reason]]:
        """Reasons why not all is well. Reads nothing."""
        return {}

    def number_that_stand_still(self, user: User) -> int:
        """The number of sentences of `Extension.stands_still` for this user. Reads nothing."""
        return 0

    def families(self, at: datetime) -> Mapping[Section, Iterable[Family | Histogram]]:
        """The metrics. This may read what nothing else needs, each in one bounded statement."""
        return {}


def in_order(*parts: Mapping[Place, Iterable[Told]]) -> list[Told]:
    """The values of several parts, by their place. Within a place the first part, the engine's own, comes first."""
    return [each for place in sorted({*chain(*parts)}) for part in parts for each in part.get(place, ())]

"""FIGURES: what a feature has read at one moment, and says of it on Home, in its sentence and to Prometheus."""

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
    """A feature's part of `Counts`: it has been read, so that whoever asks for it reads nothing again."""

    # What a consumer or a relay should take.
    wanted: Sequence[Unattended] = ()

    @property
    def held(self) -> Collection[str]:
        """The queues and types of which nothing begins, as `queue:slow`: what is due there waits for no worker."""
        return ()

    def reasons(self, at: datetime) -> Mapping[About, Iterable[Reason]]:
        """Why all is not well. It reads nothing."""
        return {}

    def number_that_stand_still(self, user: User) -> int:
        """How many sentences `Extension.stands_still` has for this user. It reads nothing."""
        return 0

    def families(self, at: datetime) -> Mapping[Section, Iterable[Family | Histogram]]:
        """What Prometheus is told. Here it may read what nobody else asks for, each in one bounded statement."""
        return {}


def in_order(*parts: Mapping[Place, Iterable[Told]]) -> list[Told]:
    """What was told by several, by its place; in one place in the order of the parts, the engine's own first."""
    return [each for place in sorted({*chain(*parts)}) for part in parts for each in part.get(place, ())]

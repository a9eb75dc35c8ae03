"""FINDINGS: what is wrong, in a sentence, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How bad it is, and the exit code of the worst, as the plugins of most monitoring systems have them.

    Warning: it goes well today. Critical: work stands still, or data, money or somebody's secrets are at risk.
    """

    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """`about` is a word for machines, the same for each finding of its kind."""

    level: Level
    about: str
    what: str
    cure: str


# Looks at one thing of the database that the settings name, and yields what is wrong with it.
Look = Callable[[], Iterator[Finding]]

"""FINDINGS: what is wrong, in a sentence, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How bad a finding is. The worst is the exit code, in the convention of monitoring plugins.

    Warning: all works today. Critical: work stands still, or data, money or secrets are at risk.
    """

    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, with its cure. `about` names its kind, for machines."""

    level: Level
    about: str
    what: str
    cure: str


# Checks one thing and yields what is wrong with it. Its docstring says what is right: findings quote it.
Look = Callable[[], Iterator[Finding]]

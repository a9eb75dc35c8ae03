"""REASONS: the parts of Home's sentence, as data: how bad each is, its words, and their links."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, auto

from workflows.health.bounded import Count, Link

# Seconds. A patient who heard "a few minutes" calls after so long.
WAITS_TOO_LONG = 15 * 60.0
# The sentence is read at a glance; the lists of services, causes and paces have the others.
NAMED = 3


class Level(IntEnum):
    """How bad it is. Slow: it recovers by itself or waits for people (`VERDICTS`). Trouble: it needs an engineer."""

    WELL = 0
    SLOW = 1
    TROUBLE = 2

    @property
    def word(self) -> str:
        return {Level.WELL: "All is well", Level.SLOW: "Slow", Level.TROUBLE: "In trouble"}[self]


class About(IntEnum):
    """The subject of a reason. It sorts the reasons of one level; the engine's come before those of features."""

    WORKERS = auto()
    SIDE_PROCESSES = auto()
    OLDEST = auto()
    FAILURES = auto()
    PROMISES = auto()
    STEPS = auto()
    CLOCK = auto()
    MAINTENANCE = auto()
    SERVICES = auto()
    LIMITS = auto()
    MONEY = auto()
    TASKS = auto()
    DECISIONS = auto()
    MESSAGES = auto()
    TAKEN_BY_NOBODY = auto()
    OTHERS = auto()


# The verdict if a reason about this is the worst, and no trouble. Of all others it is "Slow".
VERDICTS = {
    About.MONEY: "People are needed",
    About.TASKS: "People are needed",
    About.DECISIONS: "People are needed",
    About.MESSAGES: "Something stands still",
    About.TAKEN_BY_NOBODY: "Something stands still",
    About.OTHERS: "Something stands still",
}


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    level: Level
    pieces: tuple[Piece, ...]
    verdict: str = ""  # what Home says if it is the worst, in place of the words of its subject

    def __str__(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def reason(level: Level, *pieces: Piece, verdict: str = "") -> Reason:
    return Reason(level, pieces, verdict)


def of(count: Count, what: str) -> Piece:
    return Piece(f"{count} {what}", count.link)


def seconds(since: datetime | None, at: datetime) -> float:
    """The seconds since then; 0 if it is in the future, or None."""
    return max(0.0, (at - since).total_seconds()) if since else 0.0

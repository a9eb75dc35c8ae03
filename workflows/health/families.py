"""FAMILIES: what `/metrics` tells, as data. `api.metrics` puts it into Prometheus' words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum, auto
from typing import NamedTuple

Labels = Sequence[str]


class Section(IntEnum):
    """Where a family stands in the answer: in this order, those of the engine before those of features."""

    WORK = auto()
    FAILURES = auto()
    DEFERRED = auto()
    CHARGES = auto()
    TASKS = auto()
    OTHERS = auto()
    SERVICES = auto()
    STUCK = auto()
    LIMITS = auto()
    STEPS = auto()
    MAINTENANCE = auto()
    UNTRIED = auto()
    LATE = auto()
    MESSAGES = auto()
    REST = auto()
    SINCE_THE_BEGINNING = auto()


class Family(NamedTuple):
    """Numbers of now, by the values of `labels`; a counter's only grow."""

    name: str
    says: str
    labels: Labels
    values: Iterable[tuple[Labels, float]]
    is_counter: bool = False


class Histogram(NamedTuple):
    """How many took how long, by the values of `labels`: up to each bound, and the sum of their seconds."""

    name: str
    says: str
    labels: Labels
    values: Iterable[tuple[Labels, Sequence[tuple[str, float]], float]]


def one(name: str, says: str, value: float) -> Family:
    """A number without labels."""
    return Family(name, says, (), [((), value)])

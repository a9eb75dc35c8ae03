"""FAMILIES: the metrics of `/metrics`, as data. `api.metrics` writes them in Prometheus' format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum, auto
from typing import NamedTuple

Labels = Sequence[str]


class Section(IntEnum):
    """The order of the families in the answer. In a section the engine's come before those of features."""

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
    """Numbers at this moment, by the values of `labels`. Those of a counter only grow."""

    name: str
    says: str
    labels: Labels
    values: Iterable[tuple[Labels, float]]
    is_counter: bool = False


class Histogram(NamedTuple):
    """Durations by the values of `labels`: the number up to each bound, and the sum of seconds."""

    name: str
    says: str
    labels: Labels
    values: Iterable[tuple[Labels, Sequence[tuple[str, float]], float]]


def one(name: str, says: str, value: float) -> Family:
    """A number without labels."""
    return Family(name, says, (), [((), value)])

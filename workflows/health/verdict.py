"""VERDICT: whether all is well, in one sentence with its reasons. A pure function of what `health.measures` has read.

Each number in the sentence leads to the rows that it counted: see `Link`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum

from workflows.wording import length

# Seconds. Workers look several times a second, so on a usual day nothing waits for one; a minute is a backlog.
WAITS_LONG = 60.0
# A patient who was told "a few minutes" calls.
WAITS_TOO_LONG = 15 * 60.0
# A release replaces its workers within a minute, and its queues have none in between.
WORKERS_START_WITHIN = 60.0
# Fewer are a usual hour: cards are refused, programs are full.
FAILURES_WORTH_A_WORD = 10
# Of the usual: from one hour to the next numbers double by chance, and by the time of the day.
TIMES_THE_USUAL = 3.0
# The sentence is read at a glance; the list of services has the others.
SERVICES_NAMED = 3


class Level(IntEnum):
    """How bad it is: slow means that it mends itself or waits for a person, trouble that an engineer is needed."""

    WELL = 0
    SLOW = 1
    TROUBLE = 2

    @property
    def word(self) -> str:
        return {Level.WELL: "All is well", Level.SLOW: "Slow", Level.TROUBLE: "In trouble"}[self]


@dataclass(frozen=True, slots=True)
class Link:
    """A page of the console: the list of `model` with `filters`, or the row `pk`."""

    model: str
    pk: str = ""
    filters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    level: Level
    pieces: tuple[Piece, ...]

    def __str__(self) -> str:
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The worst of its reasons decides; the worst come first."""

    level: Level
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return f"{self.level.word}: {'; '.join(map(str, self.reasons))}."


@dataclass(frozen=True, slots=True)
class Number:
    """A count as people read it (`10,000+`), what it counts to at least, and the rows that it counted."""

    at_least: int
    text: str
    link: Link

    def piece(self, what: str = "") -> Piece:
        return Piece(f"{self.text} {what}".strip(), self.link)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The workflow of a queue that has been due the longest."""

    workflow: int
    since: datetime
    queue: str


@dataclass(frozen=True, slots=True)
class Down:
    """A service that is not called as usual, or that workflows still wait for. `since` is None if that is not known."""

    name: str
    since: datetime | None
    parked: Number
    is_held: bool = False
    is_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What was read at one moment."""

    at: datetime
    workers: Number
    failed: Number  # in the last hour
    failed_today: Number  # in the last 24 hours, that hour included
    usual_failures: float  # an hour, of those before
    overdue: Number
    oldest: Waiting | None = None  # of what a live worker takes
    deserted: list[Waiting] = field(default_factory=list)  # of each queue, of what no live worker takes
    services: list[Down] = field(default_factory=list)
    failing_maintenance: list[tuple[str, datetime]] = field(default_factory=list)
    hidden_until: datetime | None = None  # the database's clock was set back

    @property
    def longest_due(self) -> Waiting | None:
        """Whether a live worker takes it or not."""
        return min(filter(None, (self.oldest, *self.deserted)), key=lambda waiting: waiting.since, default=None)


def judge(health: Health) -> Verdict:
    found = [
        *_workers(health),
        *_oldest(health),
        *_failures(health),
        *_clock(health),
        *_maintenance(health),
        *_services(health),
        *_tasks(health),
    ]
    if not found:
        return Verdict(Level.WELL, tuple(_well(health)))
    # Stable: of the same level they stay in the order above.
    reasons = tuple(sorted(found, key=lambda reason: -reason.level))
    return Verdict(reasons[0].level, reasons)


def _well(health: Health) -> Iterator[Reason]:
    yield _reason(Level.WELL, health.workers.piece("live worker" if health.workers.at_least == 1 else "live workers"))
    if health.oldest:
        yield _reason(Level.WELL, Piece("the oldest waits "), _for(health.oldest, health.at))
    else:
        yield _reason(Level.WELL, Piece("nothing waits for a worker"))
    number = health.failed if health.failed.at_least else Number(0, "nothing", health.failed.link)
    yield _reason(Level.WELL, number.piece("failed in the last hour"))


def _workers(health: Health) -> Iterator[Reason]:
    if not health.workers.at_least:
        yield _reason(Level.TROUBLE, Piece("no worker is live, so nothing is worked off"))
        return
    for waiting in health.deserted:
        if _seconds(waiting.since, health.at) >= WORKERS_START_WITHIN:
            what = Piece(f"no live worker takes what is due in the queue {waiting.queue}, where the oldest waits ")
            yield _reason(Level.TROUBLE, what, _for(waiting, health.at))


def _oldest(health: Health) -> Iterator[Reason]:
    waits = _seconds(health.oldest.since, health.at) if health.oldest else 0.0
    if health.oldest and waits >= WAITS_LONG:
        level = Level.TROUBLE if waits >= WAITS_TOO_LONG else Level.SLOW
        yield _reason(level, Piece("the oldest waits "), _for(health.oldest, health.at))


def _failures(health: Health) -> Iterator[Reason]:
    failed = health.failed.at_least
    if failed >= FAILURES_WORTH_A_WORD and failed >= TIMES_THE_USUAL * health.usual_failures:
        usual = f"{health.usual_failures:,.0f} an hour" if health.usual_failures >= 1 else "less than one an hour"
        yield _reason(Level.TROUBLE, health.failed.piece("failed in the last hour"), Piece(f", where {usual} is usual"))


def _clock(health: Health) -> Iterator[Reason]:
    if health.hidden_until:
        until = _clock_of(health.hidden_until, health.at)
        yield _reason(
            Level.TROUBLE,
            Piece(f"the database's clock was set back, and hides workflows from the workers until {until}"),
        )


def _maintenance(health: Health) -> Iterator[Reason]:
    for name, since in health.failing_maintenance:
        yield _reason(
            Level.TROUBLE, Piece(f"the maintenance task “{name}” has failed since {_clock_of(since, health.at)}")
        )


def _services(health: Health) -> Iterator[Reason]:
    for each in health.services[:SERVICES_NAMED]:
        service = Piece(each.name, Link("service", pk=each.name))
        if each.is_back:
            yield _reason(Level.SLOW, service, Piece(" is called again, "), each.parked.piece("still parked"))
            continue
        since = f" since {_clock_of(each.since, health.at)}" if each.since else ""
        how = Piece(f" is held{since}" if each.is_held else f" is down{since}")
        parked = [Piece(", "), each.parked.piece("parked")] if each.parked.at_least else []
        yield _reason(Level.SLOW, service, how, *parked)
    if len(health.services) > SERVICES_NAMED:
        yield _reason(Level.SLOW, Piece("other services", Link("service")), Piece(" are in trouble, too"))


def _tasks(health: Health) -> Iterator[Reason]:
    if health.overdue.at_least:
        what = "task is overdue" if health.overdue.at_least == 1 else "tasks are overdue"
        yield _reason(Level.SLOW, health.overdue.piece(what))


def _reason(level: Level, *pieces: Piece) -> Reason:
    return Reason(level, pieces)


def _for(waiting: Waiting, at: datetime) -> Piece:
    return Piece(length(_seconds(waiting.since, at)), Link("workflow", pk=str(waiting.workflow)))


def _seconds(since: datetime, at: datetime) -> float:
    return max(0.0, (at - since).total_seconds())


def _clock_of(moment: datetime, at: datetime) -> str:
    return f"{moment:%H:%M} UTC" if moment.date() == at.date() else f"{moment:%Y-%m-%d %H:%M} UTC"

"""HEALTH: whether all is well, in one sentence with its reasons and their links. A pure function of the counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from workflows import times
from workflows.definition import wording_of_type
from workflows.features.outages.circuits import CircuitState
from workflows.features.outages.health import Standing
from workflows.health import bounded
from workflows.health.bounded import Count, Link
from workflows.health.counts import Counts
from workflows.health.money_at_risk import URGENT
from workflows.health.workers import LongestDue
from workflows.models.pace import Scope
from workflows.wording import length, plain

# Seconds. Workers look several times a second, so on a usual day nothing waits for one; a minute is a backlog.
WAITS_LONG = 60.0
# A patient who was told "a few minutes" calls.
WAITS_TOO_LONG = 15 * 60.0
# A release replaces its workers within a minute; meanwhile its queues have none.
WORKERS_START_WITHIN = 60.0
# Fewer say nothing of the whole.
FAILURES_WORTH_A_WORD = 10
# From one hour to the next, numbers double by chance and by the time of the day.
TIMES_THE_USUAL = 3.0
# The sentence is read at a glance; the list of services, and of causes, has the others.
SERVICES_NAMED = 3


class Level(IntEnum):
    """How bad it is. Slow: it mends itself or waits for a person. Trouble: an engineer is needed."""

    WELL = 0
    SLOW = 1
    TROUBLE = 2

    @property
    def word(self) -> str:
        return {Level.WELL: "All is well", Level.SLOW: "Slow", Level.TROUBLE: "In trouble"}[self]


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
class Health:
    """The state of the whole: that of its worst reason. The worst reasons come first."""

    level: Level
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return f"{self.level.word}: {'; '.join(map(str, self.reasons))}."


def judge(counts: Counts) -> Health:
    found = [
        *_workers(counts),
        *_unattended(counts),
        *_oldest(counts),
        *_failures(counts),
        *_promises(counts),
        *_causes(counts),
        *_clock(counts),
        *_maintenance(counts),
        *_services(counts),
        *_paces(counts),
        *_money(counts),
        *_tasks(counts),
        *_undecided(counts),
        *_undelivered(counts),
        *_taken_by_nobody(counts),
        *_outbox(counts),
    ]
    if not found:
        return Health(Level.WELL, tuple(_well(counts)))
    # A stable sort: reasons of one level stay in the order above.
    reasons = tuple(sorted(found, key=lambda reason: -reason.level))
    return Health(reasons[0].level, reasons)


def _well(counts: Counts) -> Iterator[Reason]:
    yield _reason(Level.WELL, _of(counts.workers, "live worker" if counts.workers.number == 1 else "live workers"))
    if counts.oldest:
        yield _reason(Level.WELL, Piece("the oldest waits "), _for(counts.oldest, counts.at))
    else:
        yield _reason(Level.WELL, Piece("nothing waits for a worker"))
    number = counts.failed if counts.failed.number else "nothing"
    yield _reason(Level.WELL, Piece(f"{number} failed in the last hour", counts.failed.link))


def _workers(counts: Counts) -> Iterator[Reason]:
    if not counts.workers.number:
        yield _reason(Level.TROUBLE, Piece("no worker is running"))
        return
    for waiting in counts.deserted:
        if _seconds(waiting.since, counts.at) >= WORKERS_START_WITHIN:
            what = Piece(f"no live worker takes what is due in the queue {waiting.queue}, where the oldest waits ")
            yield _reason(Level.TROUBLE, what, _for(waiting, counts.at))


def _unattended(counts: Counts) -> Iterator[Reason]:
    """What comes by a queue, or is to be told, and nobody takes."""
    for each in counts.unattended[:SERVICES_NAMED]:
        yield _reason(Level.TROUBLE, Piece(str(each), Link("workerprocess")))
    if more := len(counts.unattended[SERVICES_NAMED:]):
        yield _reason(Level.TROUBLE, Piece(f"{more} other topics, queues or destinations have no process"))


def _oldest(counts: Counts) -> Iterator[Reason]:
    waits = _seconds(counts.oldest.since, counts.at) if counts.oldest else 0.0
    if counts.oldest and waits >= WAITS_LONG:
        level = Level.TROUBLE if waits >= WAITS_TOO_LONG else Level.SLOW
        yield _reason(level, Piece("the oldest waits "), _for(counts.oldest, counts.at))


def _failures(counts: Counts) -> Iterator[Reason]:
    """The patients' own, such as a declined card, are a usual day, however many they are."""
    failed = counts.unexpected.number
    if failed >= FAILURES_WORTH_A_WORD and failed >= TIMES_THE_USUAL * counts.usual_failures:
        usual = f"{counts.usual_failures:,.0f} an hour" if counts.usual_failures >= 1 else "less than one an hour"
        yield _reason(
            Level.TROUBLE,
            _of(counts.unexpected, "failed unexpectedly in the last hour"),
            Piece(f", where {usual} is usual"),
        )


def _promises(counts: Counts) -> Iterator[Reason]:
    for name, number in counts.stuck.items():
        if number:
            which = f"{bounded.text(number)} {'workflow' if number == 1 else 'workflows'} of the type {_titled(name)}"
            what = f"{which} {'has' if number == 1 else 'have'} not ended within its longest time"
            yield _reason(Level.TROUBLE, Piece(what))
    for each in counts.slow:
        takes = f"the slowest 5% take {length(each.p95)} (the promise is {length(each.promised)})"
        yield _reason(Level.SLOW, Piece(f"{_titled(each.workflow_type)} is slow: {takes}"))


def _titled(workflow_type: str) -> str:
    return wording_of_type(workflow_type).title or plain(workflow_type)


def _clock(counts: Counts) -> Iterator[Reason]:
    if counts.hidden:
        until = times.brief(counts.hidden.until, counts.at)
        yield _reason(
            Level.TROUBLE,
            Piece(f"the database's clock was set back, and hides workflows from the workers until {until}"),
        )


def _maintenance(counts: Counts) -> Iterator[Reason]:
    for chore in counts.failing_maintenance:
        if since := chore.failing_since:
            what = f"the maintenance task “{chore.name}” has failed since {times.brief(since, counts.at)}"
            yield _reason(Level.TROUBLE, Piece(what))
    for chore in counts.maintenance_set_aside:
        if since := chore.set_aside_at:
            task = Piece(f"the maintenance task “{chore.name}”", Link("chore", pk=chore.name))
            yield _reason(
                Level.TROUBLE, task, Piece(f" was set aside at {times.brief(since, counts.at)}, for its workers died")
            )


def _causes(counts: Counts) -> Iterator[Reason]:
    """What many fail at, until somebody mends it."""
    troubled = [each for each in counts.causes if not each.is_called or each.parked.number]
    for each in troubled[:SERVICES_NAMED]:
        step = Piece(each.titled, Link("service", pk=each.pk))
        if each.is_called:
            yield _reason(Level.SLOW, step, Piece(" goes on again, "), _of(each.parked, "still parked"))
            continue
        how = "has been held" if each.state == CircuitState.HELD else "has failed for many"
        left = [Piece(", left to workers of another release")] if each.service.elsewhere else []
        since = f" {how}{_since(each, counts.at)} ({each.service.code})"
        yield _reason(Level.TROUBLE, step, Piece(since), *_parked(each), *left)
    if any(not each.is_called for each in troubled[SERVICES_NAMED:]):
        yield _reason(Level.TROUBLE, Piece("other steps", Link("service")), Piece(" have failed for many, too"))


def _services(counts: Counts) -> Iterator[Reason]:
    troubled = [each for each in counts.services if not each.is_called or each.parked.number]
    caps = {each.key.name: each.pace.at_once for each in counts.paces if each.key.scope == Scope.SERVICE}
    for each in troubled[:SERVICES_NAMED]:
        service = Piece(each.pk, Link("service", pk=each.pk))
        if each.is_called:
            again = f" has {caps[each.pk]} calls at a time, " if each.pk in caps else " is called again, "
            yield _reason(Level.SLOW, service, Piece(again), _of(each.parked, "still parked"))
            continue
        how = "held" if each.state == CircuitState.HELD else "down"
        since = f" has been {how}{_since(each, counts.at)}" if each.since else f" is {how}"
        yield _reason(Level.SLOW, service, Piece(since), *_parked(each))
    if len(troubled) > SERVICES_NAMED:
        yield _reason(Level.SLOW, Piece("other services", Link("service")), Piece(" are in trouble, too"))


def _paces(counts: Counts) -> Iterator[Reason]:
    """What people have slowed down: no trouble, but nobody wonders why it waits, and nobody forgets it."""
    found = [each for each in counts.paces if each.key.scope != Scope.SERVICE]
    for each in found[:SERVICES_NAMED]:
        link = Piece(each.name, Link("pace", pk=each.pk))
        waiting = Piece(f", {bounded.text(each.waiting)} wait to begin") if each.waiting else Piece("")
        if each.is_held and each.pace.held_until:
            held = f" is held by {each.pace.held_by} until {times.brief(each.pace.held_until, counts.at)}"
            yield _reason(Level.SLOW, link, Piece(held), waiting)
        elif each.waiting and each.pace.per_second:
            paced = f" goes at {each.pace.per_second:g} a second, as {each.pace.paced_by} has set it"
            yield _reason(Level.SLOW, link, Piece(paced), waiting)
        elif each.waiting and each.pace.at_once:
            capped = f" has {each.pace.at_once} at a time, as {each.pace.capped_by} has set it"
            yield _reason(Level.SLOW, link, Piece(capped), waiting)
    if len(found) > SERVICES_NAMED:
        yield _reason(Level.SLOW, Piece("other queues or types", Link("pace")), Piece(" are held or paced, too"))


def _since(each: Standing, at: datetime) -> str:
    return f" since {times.brief(each.since, at)}" if each.since else ""


def _parked(each: Standing) -> list[Piece]:
    return [Piece(", "), _of(each.parked, "parked")] if each.parked.number else []


def _money(counts: Counts) -> Iterator[Reason]:
    """Where a patient's money is in doubt, or was taken for nothing, and nobody has seen to it."""
    for task_type, count in counts.urgent.items():
        one, many = URGENT[task_type]
        what = f"{one} is overdue" if count.number == 1 else f"{many} are overdue"
        yield _reason(Level.TROUBLE, _of(count, what))
    if number := counts.unclear.number:
        what = "workflow" if number == 1 else "workflows"
        has = "has" if number == 1 else "have"
        told = f" {has} not found out for an hour whether the patient was charged"
        yield _reason(Level.TROUBLE, _of(counts.unclear, what), Piece(told))
    if counts.holding.number:
        is_one = counts.holding.number == 1
        holds = "failed workflow holds money" if is_one else "failed workflows hold money"
        left = f", and nobody has acknowledged {'it' if is_one else 'them'}"
        yield _reason(Level.SLOW, _of(counts.holding, holds), Piece(left))


def _undecided(counts: Counts) -> Iterator[Reason]:
    for count, what in counts.undecided:
        yield _reason(Level.SLOW, _of(count, what))


def _undelivered(counts: Counts) -> Iterator[Reason]:
    if counts.undelivered.number:
        what = "message" if counts.undelivered.number == 1 else "messages"
        yield _reason(Level.SLOW, _of(counts.undelivered, what), Piece(" could not be delivered"))
    if number := counts.refused.number:
        what = "submission was refused at a queue" if number == 1 else "submissions were refused at queues"
        yield _reason(Level.SLOW, _of(counts.refused, what))
    if number := counts.left_with_broker.number:
        what = f"refused {'submission is' if number == 1 else 'submissions are'} in a broker's dead letters only"
        yield _reason(Level.TROUBLE, _of(counts.left_with_broker, what))


def _taken_by_nobody(counts: Counts) -> Iterator[Reason]:
    """What is never done unless somebody starts a worker of another release, or of another queue."""
    if number := counts.of_unknown_type.number:
        wait = "workflow waits for a release that knows its type" if number == 1 else _WAIT_FOR_A_RELEASE
        refunds = [Piece(", "), _of(counts.to_be_reversed, "of them"), Piece(" to be reversed")]
        is_money = counts.to_be_reversed.number > 0
        level = Level.TROUBLE if is_money else Level.SLOW
        yield _reason(level, _of(counts.of_unknown_type, wait), *(refunds if is_money else []))
    if number := counts.late_deferred.number:
        has = Piece(f" {'has' if number == 1 else 'have'} a deferred step that no worker has taken for half an hour")
        yield _reason(Level.SLOW, _of(counts.late_deferred, "workflow" if number == 1 else "workflows"), has)


_WAIT_FOR_A_RELEASE = "workflows wait for a release that knows their type"


def _tasks(counts: Counts) -> Iterator[Reason]:
    """Those about money are told of already: all overdue ones are counted where there are others."""
    if counts.overdue.number > sum(count.number for count in counts.urgent.values()):
        what = "task is overdue" if counts.overdue.number == 1 else "tasks are overdue"
        yield _reason(Level.SLOW, _of(counts.overdue, what))
    if number := counts.overdue_waits.number:
        what = "wait is overdue" if number == 1 else "waits are overdue"
        yield _reason(Level.SLOW, _of(counts.overdue_waits, what))


def _outbox(counts: Counts) -> Iterator[Reason]:
    """What others are not told."""
    for each in counts.destinations:
        if each.given_up.number:
            what = f"given up for the destination {each.name}"
            events = "event was" if each.given_up.number == 1 else "events were"
            yield _reason(Level.SLOW, _of(each.given_up, f"{events} {what}"))
        elif each.oldest and _seconds(each.oldest, counts.at) >= WAITS_TOO_LONG:
            waits = length(_seconds(each.oldest, counts.at))
            yield _reason(
                Level.SLOW,
                Piece(f"the destination {each.name} has not received an event for "),
                Piece(waits, each.waiting.link),
            )


def _reason(level: Level, *pieces: Piece) -> Reason:
    return Reason(level, pieces)


def _of(count: Count, what: str) -> Piece:
    return Piece(f"{count} {what}", count.link)


def _for(waiting: LongestDue, at: datetime) -> Piece:
    return Piece(length(_seconds(waiting.since, at)), Link("workflow", pk=str(waiting.workflow)))


def _seconds(since: datetime, at: datetime) -> float:
    return max(0.0, (at - since).total_seconds())

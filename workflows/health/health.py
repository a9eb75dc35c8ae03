"""HEALTH: whether all is well, in one sentence with reasons and links. A pure function of the counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from workflows import times
from workflows.definition import wording_of_type
from workflows.health import bounded, money_at_risk
from workflows.health.bounded import Link
from workflows.health.counts import Counts
from workflows.health.figures import in_order
from workflows.health.reasons import NAMED, VERDICTS, WAITS_TOO_LONG, About, Level, Piece, Reason, of, reason, seconds
from workflows.health.workers import LongestDue
from workflows.wording import length, of_person, plain

# Seconds. Workers look several times a second, so usually nothing waits for one; a minute means a backlog.
WAITS_LONG = 60.0
# A deploy replaces the workers within a minute; meanwhile a queue may have none.
WORKERS_START_WITHIN = 60.0
# Fewer failures say nothing about the whole.
FAILURES_WORTH_A_WORD = 10
# From one hour to the next, numbers double by chance and with the time of day.
TIMES_THE_USUAL = 3.0


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the whole: that of its worst reason. The worst reasons come first. `word` is what they come to."""

    level: Level
    reasons: tuple[Reason, ...]
    word: str

    def __str__(self) -> str:
        return f"{self.word}: {'; '.join(map(str, self.reasons))}."


def judge(counts: Counts) -> Health:
    ours = {
        About.WORKERS: _workers(counts),
        About.SIDE_PROCESSES: _unattended(counts),
        About.OLDEST: _oldest(counts),
        About.FAILURES: _failures(counts),
        About.PROMISES: _stuck(counts),
        About.CLOCK: _clock(counts),
        About.MAINTENANCE: _maintenance(counts),
        About.MONEY: _money(counts),
        About.TASKS: _tasks(counts),
        About.DECISIONS: _undecided(counts),
        About.TAKEN_BY_NOBODY: _taken_by_nobody(counts),
    }
    parts = [ours, *(each.reasons(counts.at) for each in counts.figures)]
    found = in_order(*({about: [(about, each) for each in part[about]] for about in part} for part in parts))
    if all(each.level == Level.WELL for _, each in found):
        # A feature may name what could be wrong soon.
        word = "Well so far" if found else Level.WELL.word
        return Health(Level.WELL, (*(each for _, each in found), *_well(counts)), word)
    # The sort is stable: reasons of one level stay in their order, but what is only slow comes last.
    found.sort(key=lambda each: (-each[1].level, _word(*each) == Level.SLOW.word))
    return Health(found[0][1].level, tuple(each for _, each in found), _word(*found[0]))


def _word(about: About, worst: Reason) -> str:
    others = VERDICTS.get(about) if worst.level == Level.SLOW else None
    return worst.verdict or others or worst.level.word


def _well(counts: Counts) -> Iterator[Reason]:
    yield reason(Level.WELL, of(counts.workers, "live worker" if counts.workers.number == 1 else "live workers"))
    if counts.oldest:
        yield reason(Level.WELL, Piece("the oldest waits "), _for(counts.oldest, counts.at))
    else:
        yield reason(Level.WELL, Piece("nothing waits for a worker"))
    number = counts.failed if counts.failed.number else "nothing"
    yield reason(Level.WELL, Piece(f"{number} failed in the last hour", counts.failed.link))


def _workers(counts: Counts) -> Iterator[Reason]:
    if not counts.workers.number:
        yield reason(Level.TROUBLE, Piece("no worker is running"))
        return
    for waiting in counts.deserted:
        if seconds(waiting.since, counts.at) >= WORKERS_START_WITHIN:
            what = Piece(f"no live worker takes what is due in the queue {waiting.queue}, where the oldest waits ")
            yield reason(Level.TROUBLE, what, _for(waiting, counts.at))


def _unattended(counts: Counts) -> Iterator[Reason]:
    """Queues, topics and destinations that no consumer or relay takes."""
    for each in counts.unattended[:NAMED]:
        yield reason(Level.TROUBLE, Piece(str(each), Link("workerprocess")))
    if more := len(counts.unattended[NAMED:]):
        yield reason(Level.TROUBLE, Piece(f"{more} other topics, queues or destinations have no process"))


def _oldest(counts: Counts) -> Iterator[Reason]:
    waits = seconds(counts.oldest.since, counts.at) if counts.oldest else 0.0
    if counts.oldest and waits >= WAITS_LONG:
        level = Level.TROUBLE if waits >= WAITS_TOO_LONG else Level.SLOW
        yield reason(level, Piece("the oldest waits "), _for(counts.oldest, counts.at))


def _failures(counts: Counts) -> Iterator[Reason]:
    """Only unexpected failures. Patients' own failures, such as declined cards, are usual in any number."""
    failed = counts.unexpected.number
    if failed >= FAILURES_WORTH_A_WORD and failed >= TIMES_THE_USUAL * counts.usual_failures:
        usual = f"{counts.usual_failures:,.0f} an hour" if counts.usual_failures >= 1 else "less than one an hour"
        yield reason(
            Level.TROUBLE,
            of(counts.unexpected, "failed unexpectedly in the last hour"),
            Piece(f", where {usual} is usual"),
        )


def _stuck(counts: Counts) -> Iterator[Reason]:
    for name, number in counts.stuck.items():
        if number:
            which = f"{bounded.text(number)} {'workflow' if number == 1 else 'workflows'} of the type {_titled(name)}"
            what = f"{which} {'has' if number == 1 else 'have'} not ended within its longest time"
            yield reason(Level.TROUBLE, Piece(what))


def _titled(workflow_type: str) -> str:
    return wording_of_type(workflow_type).title or plain(workflow_type)


def _clock(counts: Counts) -> Iterator[Reason]:
    if counts.hidden:
        until = times.brief(counts.hidden.until, counts.at)
        yield reason(
            Level.TROUBLE,
            Piece(f"the database's clock was set back, and hides workflows from the workers until {until}"),
        )


def _maintenance(counts: Counts) -> Iterator[Reason]:
    for chore in counts.failing_maintenance:
        if since := chore.failing_since:
            what = f"the maintenance task “{chore.name}” has failed since {times.brief(since, counts.at)}"
            yield reason(Level.TROUBLE, Piece(what))
    for chore in counts.maintenance_set_aside:
        if since := chore.set_aside_at:
            task = Piece(f"the maintenance task “{chore.name}”", Link("chore", pk=chore.name))
            yield reason(
                Level.TROUBLE, task, Piece(f" was set aside at {times.brief(since, counts.at)}, for its workers died")
            )


def _money(counts: Counts) -> Iterator[Reason]:
    """Money that is in doubt, or was taken for nothing, and that nobody has dealt with."""
    urgent = money_at_risk.urgent()
    for task_type, count in counts.urgent.items():
        one, many = urgent[task_type]
        what = f"{one} is overdue" if count.number == 1 else f"{many} are overdue"
        yield reason(Level.TROUBLE, of(count, what))
    for task_type, count in counts.in_doubt.items():
        one, many = urgent[task_type]
        if task_type not in counts.urgent or count.number > counts.urgent[task_type].number:
            what = f"{one} waits for a person" if count.number == 1 else f"{many} wait for a person"
            yield reason(Level.SLOW, of(count, what))
    if number := counts.unclear.number:
        what = "workflow" if number == 1 else "workflows"
        has = "has" if number == 1 else "have"
        told = of_person(f" {has} not found out for an hour whether the patient was charged")
        yield reason(Level.TROUBLE, of(counts.unclear, what), Piece(told))
    if counts.holding.number:
        is_one = counts.holding.number == 1
        holds = "failed workflow holds money" if is_one else "failed workflows hold money"
        left = f", and nobody has acknowledged {'it' if is_one else 'them'}"
        yield reason(Level.SLOW, of(counts.holding, holds), Piece(left))


def _undecided(counts: Counts) -> Iterator[Reason]:
    for count, what in counts.undecided:
        yield reason(Level.SLOW, of(count, what))


def _taken_by_nobody(counts: Counts) -> Iterator[Reason]:
    """Workflows that wait for ever unless somebody starts a worker of another release or queue."""
    if number := counts.of_unknown_type.number:
        wait = "workflow waits for a release that knows its type" if number == 1 else _WAIT_FOR_A_RELEASE
        refunds = [Piece(", "), of(counts.to_be_reversed, "of them"), Piece(" to be reversed")]
        is_money = counts.to_be_reversed.number > 0
        level = Level.TROUBLE if is_money else Level.SLOW
        yield reason(level, of(counts.of_unknown_type, wait), *(refunds if is_money else []))


_WAIT_FOR_A_RELEASE = "workflows wait for a release that knows their type"


def _tasks(counts: Counts) -> Iterator[Reason]:
    """Overdue waits; and overdue tasks, unless all are about money, which has its own reasons."""
    if counts.overdue.number > sum(count.number for count in counts.urgent.values()):
        what = "task is overdue" if counts.overdue.number == 1 else "tasks are overdue"
        yield reason(Level.SLOW, of(counts.overdue, what))
    if number := counts.overdue_waits.number:
        what = "wait is overdue" if number == 1 else "waits are overdue"
        yield reason(Level.SLOW, of(counts.overdue_waits, what))


def _for(waiting: LongestDue, at: datetime) -> Piece:
    return Piece(length(seconds(waiting.since, at)), Link("workflow", pk=str(waiting.workflow)))

"""COUNTS: the numbers for Home, its sentence and the metrics. Each is one bounded read, however many rows there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import TypeVar

from django.utils import timezone

from workflows.definition import definitions
from workflows.extension import installed
from workflows.health import bounded, hidden, late, money_at_risk, open_tasks, recent_failures, undecided, workers
from workflows.health.bounded import Count, Link
from workflows.health.figures import Figures
from workflows.health.hidden import FromTheFuture
from workflows.health.open_tasks import OpenTasks
from workflows.health.recent_failures import HOUR
from workflows.health.side_processes import Unattended, unattended
from workflows.health.states import in_states
from workflows.health.workers import LongestDue
from workflows.models import Chore, ManualTask, State, Wait

Kind = TypeVar("Kind", bound=Figures)

# Presets of the list of workflows: what holds money, and what no worker takes.
HOLDING, UNKNOWN_TYPE, LATE_DEFERRED, UNCLEAR = "holding", "unknown-type", "late-deferred", "unclear"
OVERDUE_WAIT = "overdue-wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The numbers that were read at one moment."""

    at: datetime
    workers: Count
    workers_by_queue: list[tuple[str, str, int]] = field(default_factory=list)
    workers_by_release: dict[str, int] = field(default_factory=dict)
    unattended: list[Unattended] = field(default_factory=list)  # has no consumer or relay
    failed: Count  # in the last hour
    failed_today: Count  # in the last 24 hours, as in the charts, including that hour
    unexpected: Count  # failures of the last hour that no words for their code make the patient's own
    usual_failures: float  # unexpected ones an hour, in the time before
    tasks: Count
    overdue: Count
    overdue_waits: Count
    states: dict[State, Count] = field(default_factory=dict)
    types: dict[State, Counter[str]] = field(default_factory=dict)  # by state, if they are asked for
    oldest: LongestDue | None = None  # among workflows that a live worker takes and nothing holds
    deserted: list[LongestDue] = field(default_factory=list)  # the oldest of each queue that no live worker takes
    chores: list[Chore] = field(default_factory=list)  # the maintenance tasks of this release
    failing_maintenance: list[Chore] = field(default_factory=list)
    maintenance_set_aside: list[Chore] = field(default_factory=list)  # tasks whose workers died
    hidden: FromTheFuture | None = None
    stuck: dict[str, int] = field(default_factory=dict)  # by type, workflows that take longer than their longest time
    urgent: dict[str, Count] = field(default_factory=dict)  # overdue tasks with money (perhaps) in doubt, by type
    in_doubt: dict[str, Count] = field(default_factory=dict)  # open tasks with money in doubt, by type
    tasks_by_type: list[OpenTasks] = field(default_factory=list)  # if they are asked for
    unacknowledged: int = 0  # failures
    forgotten: int = 0  # of these, a day old
    undecided: list[tuple[Count, str]] = field(default_factory=list)  # rows that wait for a person, but are no tasks
    unclear: Count  # workflows under way with a charge in doubt for an hour, and no question to a person
    holding: Count  # failed workflows that hold money, and that nobody has acknowledged
    of_unknown_type: Count  # they wait for a release that knows their type
    to_be_reversed: Count  # of these
    unknown_types: Counter[tuple[str, bool]] = field(default_factory=Counter)  # by type, and whether it is reversed
    figures: list[Figures] = field(default_factory=list)  # of the features
    held: frozenset[str] = frozenset()  # queues and types in which nothing starts, by the features

    def of(self, kind: type[Kind]) -> Kind | None:
        """The figures of one feature; None if it is not installed."""
        return next((each for each in self.figures if isinstance(each, kind)), None)

    @property
    def longest_due(self) -> LongestDue | None:
        """The workflow that has been due the longest, whether a live worker takes it or not."""
        return min(filter(None, (self.oldest, *self.deserted)), key=lambda waiting: waiting.since, default=None)


def read(states: Collection[State] = State, *, by_type: bool = False) -> Counts:
    """The present numbers, with only these states; `by_type` also by the type of their workflows."""
    at = timezone.now()
    recent, day = recent_failures.read(), recent_failures.window(at, 24, HOUR)[0]
    last, before, last_hour = recent.last, recent.before, recent_failures.interval_text(at - HOUR, at)
    live = workers.live_workers()
    figures = [found for each in installed() if (found := each.figures(at))]
    held = frozenset(key for each in figures for key in each.held)
    oldest, deserted = workers.longest_due(live.by_queue, held)
    most = bounded.people_limit()
    overdue, overdue_waits = bounded.counts_of(ManualTask.objects.overdue, Wait.objects.overdue, most=most)
    unknown, counted = late.of_unknown_type(), in_states(states, by_type=by_type)
    questions = money_at_risk.questions()
    chores, slos = late.all_chores(), {name: each.slo for name, each in definitions().items()}
    stuck, unclear = money_at_risk.of_the_oldest({name: slo.longest for name, slo in slos.items() if slo})
    tasks = open_tasks.open_tasks_by_type() if by_type else None
    open_ones = open_tasks.number() if tasks is None else sum(each.number for each in tasks)
    return Counts(
        at=at,
        workers=_count(sum(live.by_release.values()), "workerprocess", state="live"),
        workers_by_queue=live.by_queue,
        workers_by_release=live.by_release,
        failed=_count(last.number, "workflow", failed=last_hour),
        failed_today=_count(last.number + before.number, "workflow", failed=recent_failures.interval_text(day, at)),
        unexpected=_count(last.unexpected, "workflow", failed=last_hour, unexpected="yes"),
        usual_failures=recent_failures.usual_failures(before, since=day, until=at - HOUR),
        tasks=_for_people(min(open_ones, most + 1), "manualtask", state="open"),
        overdue=_for_people(overdue, "manualtask", state="overdue"),
        overdue_waits=_for_people(overdue_waits, "workflow", preset=OVERDUE_WAIT),
        states={state: _count(types.total(), "workflow", state=state.value) for state, types in counted.items()},
        types=counted if by_type else {},
        oldest=oldest,
        deserted=deserted,
        chores=chores,
        failing_maintenance=sorted((each for each in chores if each.failing_since), key=attrgetter("failing_since")),
        maintenance_set_aside=sorted((each for each in chores if each.set_aside_at), key=attrgetter("set_aside_at")),
        hidden=hidden.from_the_future(),
        unattended=unattended(at, [each for of in figures for each in of.wanted]),
        figures=figures,
        held=held,
        unknown_types=unknown,
        urgent=_questions(questions.overdue, "overdue"),
        in_doubt=_questions(questions.open, "open"),
        undecided=undecided.read(),
        unclear=_count(len(unclear), "workflow", preset=UNCLEAR),
        holding=_count(len(money_at_risk.standing_charges()), "workflow", preset=HOLDING),
        of_unknown_type=_count(unknown.total(), "workflow", preset=UNKNOWN_TYPE),
        to_be_reversed=_count(
            sum(number for (_, is_reversed), number in unknown.items() if is_reversed),
            "workflow",
            preset=UNKNOWN_TYPE,
            state=State.COMPENSATING.value,
        ),
        stuck=stuck,
        tasks_by_type=tasks or [],
        unacknowledged=recent.unacknowledged,
        forgotten=recent.forgotten,
    )


def _count(number: int, model: str, **filters: str) -> Count:
    return Count(number, Link(model, filters=tuple(filters.items())))


def _questions(by_type: dict[str, int], state: str) -> dict[str, Count]:
    return {name: _count(number, "manualtask", state=state, task_type=name) for name, number in by_type.items()}


def _for_people(number: int, model: str, **filters: str) -> Count:
    return replace(_count(number, model, **filters), most=bounded.people_limit())

"""THE PATH of a workflow as a picture: a row for each step, a bar for each time it ran, and the waits between attempts.

An attempt stores when it began and ended, and for how long each step ran. Steps run one after the other, so a bar
starts where those before it end. An attempt whose worker died has no record of its steps: one bar stands for all of it.

All lengths are percents of the picture. The attempts share a scale, but none is too narrow to see. Every wait is
equally wide, and says how long it was: next to days no call would show.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from workflows.console.attempts import Listed
from workflows.console.path_waits import Wait, duration, moment, waits
from workflows.definition import WorkflowDefinition, undo_of, wording_of
from workflows.models import Attempt, Event, StepOutcome, Workflow
from workflows.telling.steps import OUTCOMES, StepLine, title_of

# The newest attempts, which fit beside each other on a phone, too.
DRAWN = 8
# Percents: of a wait, of all waits together, of the narrowest attempt (24 pixels on a phone: it is a link) and bar.
WAIT, WAITS, ATTEMPT, NARROWEST = 8.0, 32.0, 7.5, 0.4
# More rows than this of the same without a bar are one row.
ALIKE = 2

DIED = "died"
_WITHOUT_BAR = (StepOutcome.SKIPPED, StepOutcome.KEPT)
_NOT_RUN = {OUTCOMES[each] for each in (StepOutcome.RECORDED, *_WITHOUT_BAR)}
_MARKS = {
    StepOutcome.FAILED: "Stopped here",
    StepOutcome.UNDO_FAILED: "Stopped here",
    DIED: "Stopped here",
    StepOutcome.WAITING: "Waits here",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar, or a span of the axis. `told` is what it says when pointed at; `label` what stands in it, or empty."""

    kind: str
    x: float
    width: float
    told: str
    label: str = ""

    @property
    def middle(self) -> float:
        return round(self.x + self.width / 2, 2)


@dataclass(frozen=True, slots=True)
class Row:
    """A step: its bars, and what happened at it in words. `mark`: the workflow stopped, or waits, there."""

    title: str
    name: str
    told: str
    bars: Sequence[Bar] = ()
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Path:
    """The picture. `waited` says for what, and how long in all; `left_out` attempts before it are not drawn."""

    axis: Sequence[Bar]
    rows: Sequence[Row]
    waited: str
    since: datetime
    until: datetime | None
    left_out: int


class _Happened(NamedTuple):
    """Something in words, for how many seconds, if that is known, and the attempt's number."""

    label: str
    seconds: float | None
    attempt: int


@dataclass(slots=True)
class _Line:
    """What happened at one step, in order."""

    bars: list[Bar] = field(default_factory=list)
    happened: list[_Happened] = field(default_factory=list)


def path(
    workflow: Workflow,
    definition: WorkflowDefinition | None,
    attempts: Sequence[Listed],
    steps: Sequence[StepLine],
    events: Sequence[Event],
) -> Path | None:
    """The picture of the newest `attempts`, of which `steps` are the rows; None before the first.

    `events` are those of the page, newest first: they say what was waited for.
    """
    if not attempts:
        return None
    drawing = _Drawing(definition)
    drawn = [*reversed(attempts[:DRAWN])]
    wording, first = drawing.wording, drawn[0]
    pairs = [(each.first, each.attempt) for each in drawn]
    drawing.draw(drawn, waits(workflow, pairs, [*reversed(events)], wording))
    return Path(
        axis=drawing.axis,
        rows=[*_folded(drawing.rows(steps, workflow.status))],
        waited=_in_words(drawing.waited, numbered=False),
        since=first.attempt.opened_at if first.first > 1 else workflow.created_at,
        until=_until(workflow, drawn[-1].attempt),
        left_out=first.first - 1,
    )


def _until(workflow: Workflow, last: Attempt) -> datetime | None:
    """The end of the last attempt. It is the workflow's if it ended that: its row is closed some milliseconds later."""
    ended, closed = workflow.completed_at, last.closed_at
    return ended if ended and closed and last.opened_at <= ended <= closed else closed


class _Drawing:
    def __init__(self, definition: WorkflowDefinition | None) -> None:
        self.wording = wording_of(definition)
        self.names = {name: step.name for step in (definition.steps if definition else ()) for name in step.names}
        self.lines: dict[str, _Line] = {}
        self.axis: list[Bar] = []
        self.waited: list[_Happened] = []
        self.ends: dict[bool, tuple[str, str]] = {}  # the last step of the list, and the last undo: name, outcome

    def draw(self, drawn: Sequence[Listed], waited: Sequence[Sequence[Wait]]) -> None:
        """The attempts from left to right, each after its waits; then the last wait."""
        number = sum(map(bool, waited))
        wait = min(WAIT, WAITS / max(1, number))
        left, took = 100 - wait * number, [_seconds(each.attempt) for each in drawn]
        least = ATTEMPT if sum(took) else left / len(drawn)
        share = (left - least * len(drawn)) / sum(took) if sum(took) else 0.0
        x, before = 0.0, None
        for waits_before, each, seconds in zip(waited, drawn, took, strict=False):
            x = self._wait(before, waits_before, x, wait)
            self._attempt(each, seconds, x, least + share * seconds)
            x, before = x + least + share * seconds, each.attempt
        self._wait(before, waited[-1], x, wait)

    def _attempt(self, listed: Listed, seconds: float, x: float, width: float) -> None:
        attempt, at, scale = listed.attempt, 0.0, width / (seconds or 1)
        ended = f"{attempt.get_outcome_display()}, {duration(seconds)}" if attempt.closed_at else "running"
        told = f"Attempt {attempt.number}: {ended}; from {moment(attempt.opened_at)}"
        label = f"{listed.first}-{attempt.number}" if listed.same else str(attempt.number)
        self.axis.append(_bar("attempt", x, width, told, label))
        if attempt.died_in:
            what = f"{title_of(self.wording, attempt.died_in)}: its worker died here; how far it had come is not known"
            died = _Happened("Its worker died here", None, attempt.number)
            self._add(attempt.died_in, _bar(DIED, x, width, f"{what}. {told}"), died)
            self.ends[attempt.died_in.startswith(undo_of(""))] = self._named(attempt.died_in), DIED
        for entry in attempt.steps:
            took, outcome = float(entry.get("ms") or 0) / 1000, str(entry["outcome"])
            name, label = str(entry["step"]), OUTCOMES.get(outcome, outcome)
            what = f"{title_of(self.wording, undo_of(name) if entry.get('undo') else name)}: {label}, {duration(took)}"
            begun = moment(attempt.opened_at + timedelta(seconds=at))
            told = f"{what}; attempt {attempt.number}, from about {begun}"
            bar = None if outcome in _WITHOUT_BAR else _bar(outcome, x + at * scale, took * scale, told)
            self._add(name, bar, _Happened(label, took, attempt.number))
            self.ends[bool(entry.get("undo"))] = self._named(name), outcome
            at += took

    def _wait(self, before: Attempt | None, waited: Sequence[Wait], x: float, width: float) -> float:
        """The waits after an attempt as one: on the axis, and at the step that ended the attempt. Returns its end."""
        if not waited:
            return x
        told, number = "; then ".join(each.told for each in waited), before.number if before else 0
        seconds = sum(each.seconds or 0 for each in waited)
        self.axis.append(_bar("wait", x, width, told, duration(seconds) if waited[-1].until else "now"))
        happened = [_Happened(each.label, each.seconds, number) for each in waited]
        self.waited += happened
        if before and (name := before.died_in or (before.steps[-1]["step"] if before.steps else "")):
            self._add(name, _bar("wait", x, width, told), *happened)
        return x + width

    def _add(self, name: str, bar: Bar | None, *happened: _Happened) -> None:
        line = self.lines.setdefault(self._named(name), _Line())
        line.bars += [bar] if bar else []
        line.happened += happened

    def _named(self, name: str) -> str:
        """A step's name, also by an earlier one or that of its undo."""
        name = name.removeprefix(undo_of(""))
        return self.names.get(name, name)

    # --- Rows -----------------------------------------------------------------------------------------

    def rows(self, steps: Sequence[StepLine], status: str) -> Iterator[Row]:
        """A row for each step, and for each that has left the list. Marked is where it stopped, or waits now."""
        marking = {} if status == Workflow.Status.COMPLETE else {**_MARKS}
        if status != Workflow.Status.PENDING:
            marking.pop(StepOutcome.WAITING, None)
        marks = {name: marking.get(outcome, "") for name, outcome in self.ends.values()}
        known = {self._named(each.name): each for each in steps}
        for name in [*known, *(name for name in self.lines if name not in known)]:
            step, line = known.get(name), self.lines.get(name, _Line())
            ran = [each for each in line.happened if each.label not in _NOT_RUN]
            told = _in_words(ran, numbered=len({each.attempt for each in line.happened}) > 1)
            title = (step.title if step else "") or title_of(self.wording, name)
            yield Row(title, name, told or (step.label if step else ""), line.bars, marks.get(name, ""))


def _folded(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows. Several that are alike and have no bar are one."""
    for (told, has_bars), run in groupby(rows, key=lambda each: (each.told, bool(each.bars))):
        alike = list(run)
        if has_bars or len(alike) <= ALIKE:
            yield from alike
        else:
            yield Row(f"“{alike[0].title}” to “{alike[-1].title}”", "", f"{len(alike)} steps: {told.lower()}")


def _in_words(happened: Sequence[_Happened], *, numbered: bool) -> str:
    """What happened, each label once: how often, how long in all, and in which attempts."""
    found: dict[str, list[_Happened]] = {}
    for each in happened:
        found.setdefault(each.label, []).append(each)
    told = "; ".join(_of_one_label(each, numbered=numbered) for each in found.values())
    return re.sub(r"; [A-Z]", lambda start: start[0].lower(), told)


def _of_one_label(happened: Sequence[_Happened], *, numbered: bool) -> str:
    often = f" {len(happened)} times" if len(happened) > 1 else ""
    known = [each.seconds for each in happened if each.seconds is not None]
    long = f", {duration(sum(known))}" if known else ""
    return f"{happened[0].label}{often}{long}{_which([each.attempt for each in happened]) if numbered else ''}"


def _which(attempts: Sequence[int]) -> str:
    first, last = attempts[0], attempts[-1]
    if first == last:
        return f" (attempt {first})"
    if len(attempts) > 2 and last - first + 1 == len(attempts):
        return f" (attempts {first} to {last})"
    return f" (attempts {', '.join(map(str, attempts))})"


def _bar(kind: str, x: float, width: float, told: str, label: str = "") -> Bar:
    width = min(max(width, NARROWEST), 100.0)
    return Bar(kind, round(min(x, 100 - width), 2), round(width, 2), told, label)


def _seconds(attempt: Attempt) -> float:
    """How long it took; at least as long as its steps. 0 while it runs."""
    lasted = (attempt.closed_at - attempt.opened_at).total_seconds() if attempt.closed_at else 0.0
    return max(lasted, sum(float(step.get("ms") or 0) for step in attempt.steps) / 1000)

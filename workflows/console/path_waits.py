"""What a workflow waited for between its attempts, for how long, and who ended it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from workflows import times
from workflows.models import Attempt, Event, StepOutcome, Workflow
from workflows.telling import history, words
from workflows.wording import Wording, length

# Seconds. A shorter wait is left out: that is what a worker needs for its claim.
SHORTEST = 1.0

FOR_A_WORKER = "Waited for a worker"
_AFTER = {
    Attempt.Outcome.WAITING: "Waited for an answer",
    Attempt.Outcome.RETRY: "Waited for the next try",
    Attempt.Outcome.HELD: "Waited for a decision",
    Attempt.Outcome.FAILED: "Stood still after the failure",
    Attempt.Outcome.COMPENSATED: "Stood still after the reversal",
}


# An attempt, and the number of the first that it stands for, which have found the same.
Standing = tuple[int, Attempt]


class Wait(NamedTuple):
    """A wait in words; `until` is None if it goes on."""

    why: str
    since: datetime
    until: datetime | None

    @property
    def label(self) -> str:
        return self.why if self.until else f"{self.why} until now"

    @property
    def seconds(self) -> float | None:
        return (self.until - self.since).total_seconds() if self.until else None

    @property
    def told(self) -> str:
        lasted = "" if self.seconds is None else f", {duration(self.seconds)}"
        return f"{self.label}{lasted}, from {moment(self.since)}"


def waits(
    workflow: Workflow, attempts: Sequence[Standing], events: Sequence[Event], wording: Wording
) -> list[list[Wait]]:
    """The waits before each attempt, oldest first, and after the last.

    `events` are the page's, oldest first: a wait of
    which they do not tell is told by how the attempt before it ended.
    """
    first, last = attempts[0][0], attempts[-1]
    before = [] if first > 1 else _between(None, attempts[0], workflow.created_at, events, wording)
    now = []
    if workflow.status == Workflow.Status.PENDING and last[1].closed_at:
        now = [Wait(_waited_for(*last, events), last[1].closed_at, None)]
    return [before, *(_between(a, b, a[1].closed_at, events, wording) for a, b in pairwise(attempts)), now]


def _between(
    before: Standing | None, after: Standing, since: datetime | None, events: Sequence[Event], wording: Wording
) -> list[Wait]:
    """What was waited for before an attempt; and then for a worker, once the workflow was due.

    If the attempt stands for others that found the same, they have waited for what it waits for.
    """
    if since is None:
        return []
    first, attempt = after
    until = attempt.opened_at
    due = min(max(attempt.due_since or until, since), until)
    waiting = after if first < attempt.number else before
    why = _waited_for(*waiting, events) if waiting else "Waited to become due"
    found = [Wait(f"{why}{_ended_by(since, until, events, wording)}", since, due), Wait(FOR_A_WORKER, due, until)]
    return [each for each in found if (each.seconds or 0) >= SHORTEST]


def _ended_by(since: datetime, until: datetime, events: Sequence[Event], wording: Wording) -> str:
    by = next((each for each in reversed(events) if each.actor and since <= each.at <= until), None)
    return f", until {history.line(by, wording).headline.lower()} by {by.actor}" if by else ""


def _waited_for(first: int, before: Attempt, events: Sequence[Event]) -> str:
    known = [each for each in events if each.attempt is not None and each.attempt <= before.number]
    told = {each.kind: each for each in known if (each.attempt or 0) >= first}
    if waiting := told.get(Event.Kind.WAITING):
        return f"Waited ({waiting.detail.get('waiting_for', '?')})"
    last = before.steps[-1]["outcome"] if before.steps else ""
    if before.outcome == Attempt.Outcome.WAITING and last == StepOutcome.FAILED:
        told = {each.kind: each for each in known}  # one that is parked again has no event of its own
    if parked := told.get(Event.Kind.PARKED):
        return f"Waited for {parked.detail.get('mend') or words.the_service(parked.detail.get('service', ''))}"
    return "Waited after its worker died" if before.died_in else _AFTER.get(Attempt.Outcome(before.outcome), "Paused")


def duration(seconds: float) -> str:
    """`240 ms`, `3.7 s`, `2 d`: the unit that shows it."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "under 1 ms"
    return f"{seconds:.1f} s" if seconds < 60 else length(seconds)


def moment(at: datetime) -> str:
    """A time to the second by the reader's clock, and by UTC."""
    return times.second(at) if times.zone() == "UTC" else f"{times.second(at)} ({times.utc(at)})"

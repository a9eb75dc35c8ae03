"""The attempts of a workflow as its page lists them, newest first.

While a person is asked about a failed undo, a worker checks every hour whether it has happened (`engine.compensation`).
Each check is an attempt. Consecutive checks with the same result are shown as one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from workflows.definition import undo_of
from workflows.models import Attempt, StepOutcome, Workflow

ATTEMPTS_SHOWN = 20
# The question is asked again after a month of checks (`workflows.effects.reconcile.DOUBT_TIMEOUT`).
ATTEMPTS_READ = 1_000
PART = 100


@dataclass(slots=True)
class Listed:
    """An attempt, and the number of attempts before it with the same result."""

    attempt: Attempt
    same: int = 0

    @property
    def first(self) -> int:
        """The number of the first of these attempts."""
        return self.attempt.number - self.same

    @property
    def before(self) -> int:
        """The number of the attempt before."""
        return self.attempt.number - 1


def listed(workflow: Workflow) -> list[Listed]:
    """The newest attempts: at most ATTEMPTS_SHOWN, not counting repeated checks."""
    found: list[Listed] = []
    for attempt in _newest_first(workflow):
        if found and _found_the_same(found[-1], attempt):
            found[-1].same += 1
        elif len(found) < ATTEMPTS_SHOWN:
            found.append(Listed(attempt))
        else:
            break
    return found


def _newest_first(workflow: Workflow) -> Iterator[Attempt]:
    """Reads in parts: usually the first part is enough."""
    rows = Attempt.objects.filter(workflow=workflow).order_by("-number")
    start, size = 0, ATTEMPTS_SHOWN + 1
    while start < ATTEMPTS_READ:
        some = list(rows[start : start + size])
        yield from some
        if len(some) < size:
            return
        start, size = start + size, PART


def _found_the_same(later: Listed, attempt: Attempt) -> bool:
    """Whether both attempts only waited for an answer, with the same error."""
    both = (later.attempt, attempt)
    return all(map(_is_a_look, both)) and _without_time(attempt) == _without_time(later.attempt)


def _is_a_look(attempt: Attempt) -> bool:
    """Whether the attempt only found the question about an undo still open."""
    did = [(bool(step.get("undo")), step["outcome"]) for step in attempt.steps]
    return attempt.outcome == Attempt.Outcome.WAITING and did == [(True, StepOutcome.WAITING)]


def _without_time(attempt: Attempt) -> dict[str, Any]:
    return {name: value for name, value in attempt.steps[0].items() if name != "ms"}


def last_full_attempt(attempts: Sequence[Attempt]) -> Attempt | None:
    """The last attempt that ran the list of steps, or died in it.

    An attempt's steps are written when it ends. An attempt that was rescheduled, or undid something, has run no step.
    Attempts after the one that completed the workflow run a single deferred step.
    """
    closed = [attempt for attempt in attempts if attempt.closed_at]
    if completed := [attempt for attempt in closed if attempt.outcome == Attempt.Outcome.COMPLETE]:
        return completed[0]
    return next((attempt for attempt in closed if _ran_the_list(attempt)), closed[0] if closed else None)


def _ran_the_list(attempt: Attempt) -> bool:
    if attempt.steps:
        return not attempt.steps[0].get("undo")
    return bool(attempt.died_in) and not attempt.died_in.startswith(undo_of(""))

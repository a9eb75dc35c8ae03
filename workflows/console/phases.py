"""The steps of a workflow for people: by title, in phases. Finished phases are folded, failed ones are open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from workflows.models import StepOutcome
from workflows.telling.steps import StepLine
from workflows.wording import Wording, words_for_step

_DONE = frozenset({StepOutcome.RAN, StepOutcome.RECORDED, StepOutcome.SKIPPED})
_FAILED = frozenset({StepOutcome.FAILED, StepOutcome.BEST_EFFORT_FAILED, StepOutcome.UNDO_FAILED})


@dataclass(frozen=True, slots=True)
class Phase:
    """A run of steps that belong together. `state` is "done", "failed", "current" or "ahead"."""

    title: str
    state: str
    steps: Sequence[StepLine]

    @property
    def is_open(self) -> bool:
        """Whether its steps are shown at once: one has failed, or waits."""
        return self.state in ("failed", "current")

    @property
    def summary(self) -> str:
        """How far it is: `4 of 6 done, 1 reversed`. For a finished phase, how many steps, and how long they took."""
        done = sum(_outcome(step) in _DONE for step in self.steps)
        undone = sum(step.outcome == StepOutcome.UNDONE for step in self.steps)
        if self.state != "done":
            return f"{done} of {len(self.steps)} done{f', {undone} reversed' if undone else ''}"
        seconds = sum(step.ms or 0 for step in self.steps) / 1000
        return f"{len(self.steps)} step{'s' * (len(self.steps) > 1)}, {seconds:.1f} s"


def phases(wording: Wording, steps: Sequence[StepLine]) -> list[Phase]:
    """The phases of a workflow, in order. A definition without phases has a single one without a title."""
    runs = groupby(steps, key=lambda step: words_for_step(wording, step.name).phase)
    return [_phase(title, list(run)) for title, run in runs]


def _phase(title: str, steps: Sequence[StepLine]) -> Phase:
    outcomes = set(map(_outcome, steps))
    if outcomes & _FAILED:
        state = "failed"
    elif outcomes <= _DONE:
        state = "done"
    elif outcomes == {""}:
        state = "ahead"
    else:
        state = "current"
    return Phase(title, state, steps)


def _outcome(step: StepLine) -> str:
    """The step's outcome; empty if it was reversed, because that does not count as done."""
    return "" if step.outcome == StepOutcome.UNDONE else step.outcome

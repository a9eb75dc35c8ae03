"""Deferred steps on Home and in `/metrics`: those that no worker takes, and those that were given up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from workflows.health import bounded, needs_a_person
from workflows.health.bounded import Count, Link
from workflows.health.counts import LATE_DEFERRED
from workflows.health.families import Family, Section, one
from workflows.health.figures import Figures
from workflows.health.reasons import About, Level, Piece, Reason, of, reason


@dataclass(frozen=True, slots=True)
class Deferred(Figures):
    late: int = 0  # workflows with a deferred step that no worker takes

    def reasons(self, at: datetime) -> Mapping[About, Iterable[Reason]]:
        return {About.TAKEN_BY_NOBODY: self._late()}

    def _late(self) -> Iterator[Reason]:
        if self.late:
            count = Count(self.late, Link("workflow", filters=(("preset", LATE_DEFERRED),)))
            workflows, have = ("workflow", "has") if self.late == 1 else ("workflows", "have")
            told = f" {have} a deferred step that no worker has taken for half an hour"
            yield reason(Level.SLOW, of(count, workflows), Piece(told))

    def families(self, at: datetime) -> Mapping[Section, Iterable[Family]]:
        given_up = one(
            "onramp_follow_ups_given_up",
            "Deferred steps that were given up, and that nobody has acknowledged.",
            bounded.count_of(needs_a_person.given_up),
        )
        late = one(
            "onramp_late_deferred_steps",
            "Workflows with a deferred step that has been due for half an hour, and that no worker has tried.",
            self.late,
        )
        return {Section.DEFERRED: [given_up], Section.UNTRIED: [late]}

"""What the measures have found, beside what is asked of it: medians, spreads and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.console import RenderableType
from rich.table import Table

MET, MISSED, UNKNOWN = "met", "not met", "not measured"


@dataclass(frozen=True)
class Finding:
    """A figure, once for each round, and its target, if there is one. `unit`: empty for a ratio.

    A target holds for the median. Where the rounds lie on both sides of it, their noise has decided.
    """

    measure: str
    what: str
    rounds: Sequence[float]
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    why_none: str = ""  # there are no rounds

    @property
    def has_target(self) -> bool:
        return self.at_least is not None or self.at_most is not None

    @property
    def median(self) -> float | None:
        return median(self.rounds) if self.rounds else None

    @property
    def met(self) -> bool | None:
        """None without a target, or without a figure."""
        return None if self.median is None or not self.has_target else self._keeps(self.median)

    @property
    def is_noise(self) -> bool:
        """Whether some rounds keep the target, and others do not."""
        return self.has_target and len({self._keeps(value) for value in self.rounds}) == 2

    @property
    def verdict(self) -> str:
        if self.median is None:
            return f"{UNKNOWN}{': ' if self.why_none else ''}{self.why_none}"
        said = {True: MET, False: MISSED, None: ""}[self.met]
        return f"{said}, within the noise" if self.is_noise else said

    def _keeps(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    # --- As it is shown ---------------------------------------------------------------------------

    @property
    def target(self) -> str:
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return " and ".join(f"{word} {self._shown(bound)}" for word, bound in bounds if bound is not None)

    @property
    def measured(self) -> str:
        return "" if self.median is None else self._shown(self.median)

    @property
    def spread(self) -> str:
        return f"{number(min(self.rounds))} - {number(max(self.rounds))}" if len(self.rounds) > 1 else ""

    def _shown(self, value: float) -> str:
        return f"{number(value)} {self.unit}".strip()

    def as_json(self) -> dict[str, Any]:
        return {
            "measure": self.measure,
            "what": self.what,
            "unit": self.unit or "ratio",
            "at_least": self.at_least,
            "at_most": self.at_most,
            "measured": self.median,
            "least": min(self.rounds, default=None),
            "most": max(self.rounds, default=None),
            "rounds": list(self.rounds),
            "met": self.met,
            "within_the_noise": self.is_noise,
            "verdict": self.verdict,
        }


@dataclass
class Report:
    """What one measure has to say. `rounds` is what JSON can hold of all that was measured."""

    name: str
    title: str
    shown: list[RenderableType]
    findings: list[Finding]
    rounds: Any
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0  # that it took

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "seconds": round(self.seconds, 1),
            "findings": [finding.as_json() for finding in self.findings],
            "rounds": self.rounds,
            "notes": self.notes,
        }


def number(value: float) -> str:
    """With three figures that count, or all of those before the point."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def ratios(rounds: Sequence[float], to: Sequence[float]) -> list[float]:
    """Of neighbours: of each round's two figures. A round in which one of them is 0 says nothing."""
    return [value / other for value, other in zip(rounds, to, strict=True) if value and other]


def with_targets(reports: Sequence[Report]) -> list[Finding]:
    return [finding for report in reports for finding in report.findings if finding.has_target]


def summary(reports: Sequence[Report]) -> Table:
    """One line for each target."""
    table = Table("measure", "of it", "target", title="Targets", title_justify="left")
    for heading in ("measured", "least - most"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for finding in with_targets(reports):
        table.add_row(finding.measure, finding.what, finding.target, finding.measured, finding.spread, finding.verdict)
    return table


def counts(reports: Sequence[Report]) -> str:
    """How many targets are met, in a sentence."""
    found = with_targets(reports)
    met, missed = (sum(finding.met is answer for finding in found) for answer in (True, False))
    noise = sum(finding.is_noise for finding in found)
    said = f"{met} of {len(found)} targets met, {missed} not met, {len(found) - met - missed} not measured."
    if noise:
        said += f" {noise} lie within the spread of their rounds: more rounds, or a quieter machine, decide them."
    return said


def table_of(findings: Sequence[Finding], heading: str = "") -> Table:
    """A line for each figure."""
    table = Table(heading)
    for each in ("measured", "least - most"):
        table.add_column(each, justify="right")
    for each in ("target", ""):
        table.add_column(each)
    for finding in findings:
        table.add_row(finding.what, finding.measured, finding.spread, finding.target, finding.verdict)
    return table

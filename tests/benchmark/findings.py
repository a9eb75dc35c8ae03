"""What the measures have found, beside what is asked of it: medians, spreads and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from statistics import median
from typing import Any, TypeVar

from rich import progress
from rich.console import Console
from rich.table import Table

MET, MISSED, UNKNOWN = "met", "not met", "not measured"

K = TypeVar("K")
T = TypeVar("T")


def track(times: Sequence[T], description: str) -> Iterable[T]:
    """One after the other, with a bar on stderr: what is measured takes its time."""
    return progress.track(times, description, console=Console(stderr=True))


def in_turns(contestants: Mapping[K, Callable[[], T]], rounds: int, description: str) -> list[dict[K, T]]:
    """What each returns in each round. Each is the first, and the last, in turn: a busy moment hits all of them."""
    names, found = list(contestants), []
    for number_ in track(range(rounds), description):
        first = number_ % len(names)
        told = {name: contestants[name]() for name in names[first:] + names[:first]}
        found.append({name: told[name] for name in names})
    return found


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
    def met(self) -> bool | None:
        """None without a target, or without a figure."""
        return self._keeps(median(self.rounds)) if self.has_target and self.rounds else None

    @property
    def is_noise(self) -> bool:
        """Whether some rounds keep the target, and others do not."""
        return self.has_target and len({self._keeps(value) for value in self.rounds}) == 2

    @property
    def verdict(self) -> str:
        if not self.rounds:
            return f"{UNKNOWN}{': ' if self.why_none else ''}{self.why_none}"
        said = {True: MET, False: MISSED, None: ""}[self.met]
        return f"{said}, within the noise" if self.is_noise else said

    def _keeps(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def cells(self) -> dict[str, str]:
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        some, several = len(self.rounds) > 0, len(self.rounds) > 1
        return {
            "measured": self._shown(median(self.rounds)) if some else "",
            "least - most": f"{number(min(self.rounds))} - {number(max(self.rounds))}" if several else "",
            "target": "".join(f"{word} {self._shown(bound)}" for word, bound in bounds if bound is not None),
            "verdict": self.verdict,
        }

    def _shown(self, value: float) -> str:
        return f"{number(value)} {self.unit}".strip()

    def as_json(self) -> dict[str, Any]:
        measured = median(self.rounds) if self.rounds else None
        return {**asdict(self), "measured": measured, "met": self.met, "verdict": self.verdict}


@dataclass
class Report:
    """What one measure has to say. `rounds` is what JSON can hold of all that was measured.

    Without `shown`, the findings are what is shown.
    """

    title: str
    findings: list[Finding]
    rounds: Any
    shown: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def tables(self) -> list[Table]:
        return self.shown or tables_of(self.findings)

    def as_json(self) -> dict[str, Any]:
        findings = [finding.as_json() for finding in self.findings]
        return {"title": self.title, "findings": findings, "rounds": self.rounds, "notes": self.notes}


def number(value: float) -> str:
    """With three figures that count, or all of those before the point."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 or value == int(value) else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def ratios(rounds: Sequence[float], to: Sequence[float]) -> list[float]:
    """Of neighbours: of each round's two figures. A round in which one of them is 0 says nothing."""
    return [value / other for value, other in zip(rounds, to, strict=True) if value and other]


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def grid(corner: str, rows: Iterable[tuple[str, Mapping[str, float | str]]], title: str = "") -> Table:
    """A line for each, with its figures by column. What a line does not have stays empty."""
    table, rows = Table(corner, title=title or None, title_justify="left"), list(rows)
    columns = list(dict.fromkeys(column for _, row in rows for column in row))
    for column in columns:
        table.add_column(column, justify="left" if column in ("of it", "target", "verdict") else "right")
    for name, row in rows:
        cells = [row.get(column, "") for column in columns]
        table.add_row(name, *(cell if isinstance(cell, str) else number(cell) for cell in cells))
    return table


def tables_of(findings: Iterable[Finding]) -> list[Table]:
    """A table of each measure, with a line for each figure."""
    of_measure = groupby(findings, key=lambda finding: finding.measure)
    return [grid(measure, ((each.what, each.cells()) for each in found)) for measure, found in of_measure]


def with_targets(reports: Iterable[Report]) -> list[Finding]:
    return [finding for report in reports for finding in report.findings if finding.has_target]


def summary(found: Sequence[Finding]) -> Table:
    return grid("measure", ((each.measure, {"of it": each.what, **each.cells()}) for each in found), "Targets")


def counts(found: Sequence[Finding]) -> str:
    """How many targets are met, in a sentence."""
    met, missed = (sum(finding.met is answer for finding in found) for answer in (True, False))
    noise = sum(finding.is_noise for finding in found)
    said = f"{met} of {len(found)} targets met, {missed} not met, {len(found) - met - missed} not measured."
    if noise:
        said += f" {noise} lie within the spread of their rounds: more rounds, or a quieter machine, decide them."
    return said

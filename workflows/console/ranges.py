"""RANGES of time that pages can show numbers of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from workflows.health import recent_failures
from workflows.models.rollup import Grain

DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Range:
    """A range up to now, in columns that start at full hours, or days, of UTC."""

    key: str
    label: str
    number: int
    column: timedelta
    grain: Grain

    def window(self, now: datetime) -> tuple[datetime, datetime]:
        return recent_failures.window(now, self.number, self.column)


RANGES = (
    Range("24h", "24 hours", 24, HOUR, Grain.HOUR),
    Range("7d", "7 days", 28, 6 * HOUR, Grain.HOUR),
    Range("30d", "30 days", 30, DAY, Grain.DAY),
)

"""RANGES of time that pages can show numbers of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from django.utils import timezone

from workflows.health import recent_failures
from workflows.models.rollup import Grain

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
LAST_LABEL = 88.0


@dataclass(frozen=True, slots=True)
class Range:
    """A range up to now, in columns that start at full hours, or days, of UTC."""

    key: str
    label: str
    number: int
    column: timedelta
    grain: Grain
    together: int  # so many columns are one target for a finger: at least 24 pixels on a phone
    tick: timedelta  # so often the axis says when, and how
    how: str

    def window(self, now: datetime) -> tuple[datetime, datetime]:
        return recent_failures.window(now, self.number, self.column)

    def axis(self, starts: Sequence[datetime]) -> list[tuple[float, str]]:
        """Where the axis below columns that start then has its labels, in percent, and what they say.

        By the reader's clock: at full quarters of a day, at the beginning of days, or on Mondays. None is so far to the
        right that it would not fit.
        """
        local = [timezone.localtime(at).replace(tzinfo=None) for at in starts]
        slots = [(at - datetime.min) // self.tick for at in local]
        begun = [number for number, (before, slot) in enumerate(pairwise(slots), 1) if slot != before]
        places = [(round(100 * number / self.number, 2), f"{local[number]:{self.how}}") for number in begun]
        return [(x, label) for x, label in places if x <= LAST_LABEL]


RANGES = (
    Range("24h", "24 hours", 24, HOUR, Grain.HOUR, 2, 6 * HOUR, "%H:%M"),
    Range("7d", "7 days", 28, 6 * HOUR, Grain.HOUR, 4, DAY, "%a"),
    Range("30d", "30 days", 30, DAY, Grain.DAY, 3, 7 * DAY, "%-d %b"),
)

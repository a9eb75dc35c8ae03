"""`manage.py capacity`: what a number of submissions a day needs. Arithmetic: it asks no database.

A worker runs one workflow at a time, so by Little's law as many workers are busy as workflows arrive a second times the
seconds that one takes. With the 95th percentile in place of the mean there is room for what takes longer.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from workflows.management.arguments import HelpInLines
from workflows.wording import length

HELP = """\
How many workers, connections, cores and bytes a number of submissions a day needs.

A worker runs one workflow at a time. With a 95th percentile of 3 seconds it does 20 a minute,
and 1,000,000 a day keep 35 workers busy in the mean. You may start workers for the busiest hour,
or fewer: then the queue takes the peak, workers finish it later, and the services downstream
never see it.

The bytes and transaction ids are those of an onboarding (21 steps, 15 recorded calls), as measured
in docs/performance.md; the cores are a rough estimate. Measure yours: make bench.
"""

EXAMPLES = """\
examples:
  manage.py capacity --per-day 1000000 --p95 3
  manage.py capacity --per-day 200000 --p95 8 --peak 12 --keep 365
"""

# What one onboarding costs, of 21 steps with 15 recorded calls: measured by `make bench` (docs/performance.md). Other
# definitions differ most by their recorded calls.
TABLE_BYTES, WAL_BYTES, XIDS = 8_600, 20_300, 22
# Seconds of processor time of one workflow: rough, because the steps' own needs seldom decide on a host.
WORKER_CPU, SERVER_CPU, INTAKE_CPU = 0.020, 0.010, 0.0015
# Bytes of memory of one more worker process, beside what all of a host share; and its sessions.
WORKER_BYTES, SESSIONS = 11e6, 2
# PostgreSQL's default. https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-WRAPAROUND
FREEZE_MAX_AGE = 200_000_000

DAY, HOUR = 86_400.0, 3_600.0
GIGA, MEGA = 1e9, 1e6


class Load(NamedTuple):
    """Submissions a second, the workers that are enough for them, and the share of time in which these are busy."""

    rate: float
    workers: int
    busy: float


class Backlog(NamedTuple):
    """What the busiest hour leaves to workers that are enough for the mean.

    `waiting`: workflows when the hour ends. `drained_after`: seconds from then until none waits. `longest_wait`:
    seconds for the last that came in that hour.
    """

    waiting: int
    drained_after: float
    longest_wait: float


def load(rate: float, p95: float, busy: float) -> Load:
    return Load(rate, max(1, math.ceil(rate * p95 / busy)), busy)


def backlog(rate: float, peak: float, capacity: float) -> Backlog:
    """What arrives in the busiest hour beyond `capacity` waits; the rest of the day arrives evenly. Rates a second."""
    waiting = max(0.0, rate * peak - capacity) * HOUR
    if waiting == 0:
        return Backlog(0, 0.0, 0.0)
    return Backlog(round(waiting), waiting / (capacity - rate * (24 - peak) / 23), waiting / capacity)


SHOWN: list[tuple[str, Callable[[Load], str]]] = [
    ("submissions a second", lambda load: f"{load.rate:,.1f}"),
    ("worker processes", lambda load: f"{load.workers:,}"),
    ("their connections", lambda load: f"{load.workers * SESSIONS:,}"),
    ("their memory, GB", lambda load: f"{load.workers * WORKER_BYTES / GIGA:,.1f}"),
    ("cores: workers", lambda load: f"{load.rate * WORKER_CPU / load.busy:,.1f}"),
    ("cores: PostgreSQL", lambda load: f"{load.rate * SERVER_CPU / load.busy:,.1f}"),
    ("cores: intake", lambda load: f"{load.rate * INTAKE_CPU / load.busy:,.1f}"),
    ("commits a second", lambda load: f"{load.rate * XIDS:,.0f}"),
    ("WAL, MB a second", lambda load: f"{load.rate * WAL_BYTES / MEGA:,.1f}"),
]


def number(least: float, most: float, what: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text.replace(",", "").replace("_", ""))
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ArgumentTypeError(f"{text!r} will not do: give {what}, from {least:g} to {most:g}")
        return value

    return read


class Command(HelpInLines):
    help = HELP
    examples = EXAMPLES
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--per-day", required=True, type=number(1, 1e9, "a number"), metavar="N", help="submissions a day")
        long = "how long the steps of a workflow take, at the 95th percentile"
        add("--p95", required=True, type=number(0.001, 3600, "seconds"), metavar="SECONDS", help=long)
        most = "the busiest hour, as a multiple of the mean hour (default: 3; 24 means all in one hour)"
        add("--peak", type=number(1, 24, "a number"), default=3.0, metavar="TIMES", help=most)
        share = "how much of their time the workers may be busy (default: 80)"
        add("--busy", type=number(1, 100, "a percentage"), default=80.0, metavar="PERCENT", help=share)
        kept = "how long finished workflows stay in the tables (default: 90)"
        add("--keep", type=number(1, 36_500, "a number of days"), default=90.0, metavar="DAYS", help=kept)

    def handle(self, *args: Any, per_day: float, p95: float, peak: float, busy: float, keep: float, **_: Any) -> None:
        mean, busiest = (load(per_day / DAY * times, p95, busy / 100) for times in (1, peak))
        self.stdout.write(
            f"{per_day:,.0f} submissions a day of {p95:g} s each; a worker does {60 / p95:,.1f} a minute.\n\n"
        )
        self.stdout.write(f"{'':32}{'the mean':>12}{'busiest hour':>16}\n")
        for label, show in SHOWN:
            self.stdout.write(f"{label:32}{show(mean):>12}{show(busiest):>16}\n")
        words = [_busiest_hour(mean, peak, p95), *_a_day(per_day, keep), "", *_settings(per_day, busiest)]
        self.stdout.write("\n" + "\n".join(words) + "\n")


def _busiest_hour(mean: Load, peak: float, p95: float) -> str:
    left = backlog(mean.rate, peak, mean.workers / p95)
    if left.waiting == 0:
        return f"{mean.workers:,} workers are enough for the busiest hour, too."
    return (
        f"With {mean.workers:,} workers the busiest hour leaves {left.waiting:,} waiting, of which the last waits "
        f"{_time(left.longest_wait)}. {_time(left.drained_after)} after that hour none waits."
    )


def _time(seconds: float) -> str:
    """Hours to a tenth: a whole one would be too coarse to plan by."""
    return f"{seconds / HOUR:,.1f} h" if seconds >= HOUR else length(seconds)


def _a_day(per_day: float, keep: float) -> Iterator[str]:
    yield (
        f"A day takes {per_day * TABLE_BYTES / GIGA:,.1f} GB of tables and {per_day * WAL_BYTES / GIGA:,.1f} GB of "
        f"WAL. {keep:g} days of it are {per_day * TABLE_BYTES * keep / GIGA:,.0f} GB."
    )
    yield (
        f"A day takes {per_day * XIDS / MEGA:,.0f} million transaction ids: PostgreSQL freezes all tables every "
        f"{_days_between_freezes(per_day):,.1f} days."
    )


def _days_between_freezes(per_day: float) -> float:
    return FREEZE_MAX_AGE / (per_day * XIDS)


def _settings(per_day: float, busiest: Load) -> Iterator[str]:
    yield "Settings of PostgreSQL:"
    # Intake, console, replication, and people: see "How many connections" in docs/deployment.md.
    yield f"  max_connections              {busiest.workers * SESSIONS + 100}   the workers', and 100 for all others"
    wal = math.ceil(busiest.rate * WAL_BYTES * 900 * 2 / GIGA)
    yield f"  max_wal_size                 {wal}GB   two checkpoints of 15 minutes in the busiest hour"
    yield "  checkpoint_timeout           15min   fewer full pages in the WAL"
    if _days_between_freezes(per_day) < 7:
        yield "  autovacuum_freeze_max_age    1000000000   a freeze each week or less often costs less than one a day"
    if per_day * XIDS > 1e9:
        yield "  More than a thousand million ids a day: share the submissions among several clusters by key."

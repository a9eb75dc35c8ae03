"""`manage.py capacity`: what a number of submissions a day needs. It asks no database."""

from __future__ import annotations

import math
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator
from typing import Any

from django.core.management.base import BaseCommand

from workflows.management.capacity import Load, Plan, plan
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

GIGA, MEGA = 1e9, 1e6


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


class Command(BaseCommand):
    help = HELP
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        return super().create_parser(
            prog_name, subcommand, epilog=EXAMPLES, formatter_class=RawDescriptionHelpFormatter, **kwargs
        )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--per-day", required=True, type=number(1, 1e9, "a number"), metavar="N", help="submissions a day"
        )
        parser.add_argument(
            "--p95",
            required=True,
            type=number(0.001, 3600, "seconds"),
            metavar="SECONDS",
            help="how long the steps of a workflow take, at the 95th percentile",
        )
        parser.add_argument(
            "--peak",
            type=number(1, 24, "a number"),
            default=3.0,
            metavar="TIMES",
            help="the busiest hour, as a multiple of the mean hour (default: 3; 24 means all in one hour)",
        )
        parser.add_argument(
            "--busy",
            type=number(1, 100, "a percentage"),
            default=80.0,
            metavar="PERCENT",
            help="how much of their time the workers may be busy (default: 80)",
        )
        parser.add_argument(
            "--keep",
            type=number(1, 36_500, "a number of days"),
            default=90.0,
            metavar="DAYS",
            help="how long finished workflows stay in the tables (default: 90)",
        )

    def handle(self, *args: Any, per_day: float, p95: float, peak: float, busy: float, keep: float, **_: Any) -> None:
        found = plan(per_day, p95, peak=peak, busy=busy / 100, keep_days=keep)
        self.stdout.write(
            f"{per_day:,.0f} submissions a day of {p95:g} s each; a worker does {60 / p95:,.1f} a minute.\n\n"
        )
        self.stdout.write(f"{'':32}{'the mean':>12}{'busiest hour':>16}\n")
        for label, mean, busiest in _loads(found):
            self.stdout.write(f"{label:32}{mean:>12}{busiest:>16}\n")
        self.stdout.write("\n" + "\n".join(_words(found, keep)) + "\n")


def _loads(found: Plan) -> Iterator[tuple[str, str, str]]:
    shown: list[tuple[str, Callable[[Load], str]]] = [
        ("submissions a second", lambda load: f"{load.rate:,.1f}"),
        ("worker processes", lambda load: f"{load.workers:,}"),
        ("their connections", lambda load: f"{load.connections:,}"),
        ("their memory, GB", lambda load: f"{load.memory_bytes / GIGA:,.1f}"),
        ("cores: workers", lambda load: f"{load.worker_cores:,.1f}"),
        ("cores: PostgreSQL", lambda load: f"{load.server_cores:,.1f}"),
        ("cores: intake", lambda load: f"{load.intake_cores:,.1f}"),
        ("commits a second", lambda load: f"{load.commits:,.0f}"),
        ("WAL, MB a second", lambda load: f"{load.wal_bytes / MEGA:,.1f}"),
    ]
    for label, show in shown:
        yield label, show(found.mean), show(found.peak)


def _words(found: Plan, keep: float) -> Iterator[str]:
    backlog, workers = found.backlog, found.mean.workers
    if backlog.waiting == 0:
        yield f"{workers:,} workers are enough for the busiest hour, too."
    else:
        yield (
            f"With {workers:,} workers the busiest hour leaves {backlog.waiting:,} waiting, of which the last waits "
            f"{_time(backlog.longest_wait)}. {_time(backlog.drained_after)} after that hour none waits."
        )
    yield (
        f"A day takes {found.table_bytes_a_day / GIGA:,.1f} GB of tables and {found.wal_bytes_a_day / GIGA:,.1f} GB of "
        f"WAL. {keep:g} days of it are {found.kept_bytes / GIGA:,.0f} GB."
    )
    yield (
        f"A day takes {found.xids_a_day / MEGA:,.0f} million transaction ids: PostgreSQL freezes all tables every "
        f"{found.days_between_freezes:,.1f} days."
    )
    yield from _advice(found)


def _time(seconds: float) -> str:
    """Hours to a tenth: a whole one would be too coarse to plan by."""
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else length(seconds)


def _advice(found: Plan) -> Iterator[str]:
    yield ""
    yield "Settings of PostgreSQL:"
    # Intake, console, replication, and people: see "How many connections" in docs/deployment.md.
    yield f"  max_connections              {found.peak.connections + 100}   the workers', and 100 for all others"
    wal = math.ceil(found.peak.wal_bytes * 900 * 2 / GIGA)
    yield f"  max_wal_size                 {wal}GB   two checkpoints of 15 minutes in the busiest hour"
    yield "  checkpoint_timeout           15min   fewer full pages in the WAL"
    if found.days_between_freezes < 7:
        yield "  autovacuum_freeze_max_age    1000000000   a freeze each week or less often costs less than one a day"
    if found.xids_a_day > 1e9:
        yield "  More than a thousand million ids a day: share the submissions among several clusters by key."

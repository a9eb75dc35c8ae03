"""CAPACITY: how many workers, connections, cores and bytes a number of submissions a day needs. Arithmetic, no query.

A worker runs one workflow at a time, so by Little's law as many workers are busy as workflows arrive a second times the
seconds that one takes. With the 95th percentile in place of the mean there is room for what takes longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DAY, HOUR = 86_400.0, 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one workflow costs; the defaults are of an onboarding, of 21 steps with 15 recorded calls.

    Bytes and transaction ids are measured by `make bench` (docs/performance.md); other definitions differ by
    their recorded calls most of all. The milliseconds of processor time are rough: with what the steps themselves need
    they are seldom what a host is bought for.
    """

    table_bytes: float = 8_600
    wal_bytes: float = 20_300
    xids: float = 22.0
    worker_cpu_ms: float = 20.0
    server_cpu_ms: float = 10.0
    intake_cpu_ms: float = 1.5


# Bytes of memory of one more worker process, beside what all of a host share.
WORKER_BYTES = 11e6
# A worker's two sessions, and the server's memory for each.
SESSIONS_A_WORKER = 2


@dataclass(frozen=True, slots=True)
class Load:
    """What a rate of submissions needs. `rate` is a second; `cores` by who uses them."""

    rate: float
    workers: int
    connections: int
    memory_bytes: float
    worker_cores: float
    server_cores: float
    intake_cores: float
    commits: float
    wal_bytes: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """What the busiest hour leaves to workers that are enough for the mean.

    `waiting`: workflows when the hour ends. `drained_after`: seconds from then until none waits.
    `longest_wait`: of the last that came in that hour, seconds.
    """

    waiting: int
    drained_after: float
    longest_wait: float


@dataclass(frozen=True, slots=True)
class Plan:
    """`mean` and `peak` are of the mean of the day and of its busiest hour; the rest is a day's, in bytes and ids."""

    mean: Load
    peak: Load
    backlog: Backlog
    xids_a_day: float
    wal_bytes_a_day: float
    table_bytes_a_day: float
    kept_bytes: float

    @property
    def days_between_freezes(self) -> float:
        """How often PostgreSQL has to freeze every table, with its default of `autovacuum_freeze_max_age`."""
        return FREEZE_MAX_AGE / self.xids_a_day


# PostgreSQL's default. https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-WRAPAROUND
FREEZE_MAX_AGE = 200_000_000


def plan(
    per_day: float,
    p95: float,
    *,
    peak: float = 3.0,
    busy: float = 0.8,
    keep_days: float = 90.0,
    cost: Cost | None = None,
) -> Plan:
    """What `per_day` submissions need that take `p95` seconds each, the pauses between attempts not counted.

    `peak` is how many times the mean hour the busiest has, at most 24; `busy` the share of their time that workers are
    to be used for, above 0 and at most 1; `keep_days` how long finished workflows stay in the tables.
    """
    cost = cost or Cost()
    rate = per_day / DAY
    mean, busiest = _load(rate, p95, busy, cost), _load(rate * peak, p95, busy, cost)
    return Plan(
        mean=mean,
        peak=busiest,
        backlog=_backlog(rate, peak, mean.workers / p95),
        xids_a_day=per_day * cost.xids,
        wal_bytes_a_day=per_day * cost.wal_bytes,
        table_bytes_a_day=per_day * cost.table_bytes,
        kept_bytes=per_day * cost.table_bytes * keep_days,
    )


def _load(rate: float, p95: float, busy: float, cost: Cost) -> Load:
    workers = max(1, math.ceil(rate * p95 / busy))
    return Load(
        rate=rate,
        workers=workers,
        connections=workers * SESSIONS_A_WORKER,
        memory_bytes=workers * WORKER_BYTES,
        worker_cores=rate * cost.worker_cpu_ms / 1000 / busy,
        server_cores=rate * cost.server_cpu_ms / 1000 / busy,
        intake_cores=rate * cost.intake_cpu_ms / 1000 / busy,
        commits=rate * cost.xids,
        wal_bytes=rate * cost.wal_bytes,
    )


def _backlog(rate: float, peak: float, capacity: float) -> Backlog:
    """What arrives in the busiest hour beyond `capacity` waits; the rest of the day arrives evenly. Rates a second."""
    waiting = max(0.0, rate * peak - capacity) * HOUR
    if waiting == 0:
        return Backlog(0, 0.0, 0.0)
    return Backlog(round(waiting), waiting / (capacity - rate * (24 - peak) / 23), waiting / capacity)

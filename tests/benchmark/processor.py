"""Processor time, which other work on the machine disturbs less than it disturbs rates."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psutil

from tests.benchmark.database import Database
from tests.processes import children_of
from tests.servers import Gunicorn

SESSIONS = "SELECT array_agg(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND "


def seconds_used(database: Database, server: Gunicorn) -> float:
    """Seconds of processor time that a server's processes and all sessions of the database have used so far."""
    sessions = database.ask(SESSIONS + "datname = current_database()")
    return seconds_of([*children_of(server.process.pid), *sessions])


def seconds_of(processes: Iterable[int]) -> float:
    """Seconds of processor time that these have used so far. One that has ended meanwhile is left out."""
    seconds = 0.0
    for pid in processes:
        with suppress(psutil.NoSuchProcess):
            seconds += sum(psutil.Process(pid).cpu_times()[:2])
    return seconds

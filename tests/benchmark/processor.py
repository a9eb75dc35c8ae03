"""Processor time, which other work on the machine disturbs less than it disturbs rates."""

from __future__ import annotations

import psutil

from tests.benchmark.database import Database
from tests.servers import Gunicorn


def seconds_used(database: Database, server: Gunicorn) -> float:
    """Seconds of processor time that a server's processes and all sessions of the database have used so far."""
    sessions = database.ask("SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = current_database()")
    processes = [*psutil.Process(server.process.pid).children(), *map(psutil.Process, sessions)]
    return sum(sum(process.cpu_times()[:2]) for process in processes)

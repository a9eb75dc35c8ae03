"""The memory of one more worker process."""

from __future__ import annotations

import psutil

from tests.benchmark.database import BenchmarkError
from tests.benchmark.findings import Finding, Report
from tests.benchmark.setting import Setting
from tests.processes import until

# Megabytes of its own (USS).
GOAL = 25
PROCESSES, WORKFLOWS = 4, 400


def report(setting: Setting) -> Report:
    """Of workers that have drained some workflows: what only they hold, and what all of them share, in MB."""
    database = setting.database
    database.begin_anew()
    with setting.working(processes=PROCESSES) as worker:
        database.submit("plain", WORKFLOWS)
        until(lambda: not database.count("status = 'PENDING'"), seconds=600, what=lambda: worker.output)
        sizes = [psutil.Process(pid).memory_full_info() for pid in worker.children()]
    if len(sizes) != PROCESSES:
        raise BenchmarkError(f"{len(sizes)} of {PROCESSES} workers are left.")
    rounds = {"uss": [each.uss / 1e6 for each in sizes], "rss": [each.rss / 1e6 for each in sizes]}
    found = [
        Finding("memory", "one more worker process, of its own", rounds["uss"], "MB", at_most=GOAL),
        Finding("memory", "with what all share", rounds["rss"], "MB"),
    ]
    return Report(f"{PROCESSES} worker processes that have done {WORKFLOWS} workflows", found, rounds)

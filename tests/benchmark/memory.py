"""What one more worker process needs of memory."""

from __future__ import annotations

import psutil

from tests.benchmark.database import BenchmarkError, production
from tests.benchmark.findings import Finding, Report, table_of
from tests.benchmark.setting import Setting
from tests.processes import Runworker, until

# Megabytes of its own (USS).
GOAL = 25
PROCESSES, WORKFLOWS = 4, 400


def report(setting: Setting) -> Report:
    """Of workers that have drained some workflows: what only they hold, and what all of them share, in MB."""
    database = setting.database
    database.begin_anew()
    worker = Runworker(setting.folder / "memory.log", (), ("--processes", str(PROCESSES)), **production(database.url))
    try:
        database.submit("plain", WORKFLOWS)
        left = "SELECT count(*) = 0 FROM workflows_workflow WHERE status = 'PENDING'"
        until(lambda: database.ask(left), seconds=600, what=lambda: worker.output)
        sizes = [psutil.Process(pid).memory_full_info() for pid in worker.children()]
    finally:
        worker.kill()
    if len(sizes) != PROCESSES:
        raise BenchmarkError(f"{len(sizes)} of {PROCESSES} workers are left.")
    found = [
        Finding(
            "memory",
            "one more worker process, of its own",
            _megabytes([each.uss for each in sizes]),
            "MB",
            at_most=GOAL,
        ),
        Finding("memory", "with what all share", _megabytes([each.rss for each in sizes]), "MB"),
    ]
    rounds = [{"uss": each.uss, "rss": each.rss} for each in sizes]
    title = f"{PROCESSES} worker processes that have done {WORKFLOWS} workflows"
    return Report("memory", title, [table_of(found)], found, rounds)


def _megabytes(sizes: list[int]) -> list[float]:
    return [size / 1e6 for size in sizes]

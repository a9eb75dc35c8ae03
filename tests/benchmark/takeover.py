"""How long a row is nobody's, from the SIGKILL of the worker that holds it until another one does."""

from __future__ import annotations

import os
import random
import signal
import time

from tests.benchmark.database import Database
from tests.benchmark.findings import Finding, Report, track
from tests.benchmark.setting import Setting
from tests.processes import Runworker, until


def report(setting: Setting) -> Report:
    """From each SIGKILL to the opening of the next attempt, both by the database's clock."""
    setting.database.begin_anew()
    processes, milliseconds = max(2, setting.sizes.processes), []
    with setting.working(processes=processes) as worker:
        for _ in track(range(setting.sizes.kills), "takeover"):
            until(lambda: len(worker.children()) == processes, what=lambda: worker.output)
            # Past the age at which a death is that of a young one, and at any point of the others' polling.
            time.sleep(random.uniform(1.0, 1.5))
            milliseconds.append(_kill_one(setting.database, worker) * 1000)
    found = [Finding("takeover", "SIGKILL to held again", milliseconds, "ms")]
    return Report(f"{setting.sizes.kills} kills", found, milliseconds)


def _kill_one(database: Database, worker: Runworker) -> float:
    pk = database.submit("held", 1)
    attempt = f"FROM workflows_attempt WHERE workflow_id = {pk} AND number = "
    holder = until(lambda: database.ask(f"SELECT worker {attempt} 1"), what=lambda: worker.output)
    killed_at = database.ask("SELECT clock_timestamp()")
    os.kill(int(holder.rpartition(":")[2]), signal.SIGKILL)
    held_again_at = until(lambda: database.ask(f"SELECT opened_at {attempt} 2"), what=lambda: worker.output)
    until(lambda: database.count(f"id = {pk} AND status = 'COMPLETE'"), what=lambda: worker.output)
    return float((held_again_at - killed_at).total_seconds())

"""How long a row is nobody's after the worker that holds it was killed."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from tests.benchmark.database import Database, production
from tests.benchmark.progress import Track
from tests.processes import Runworker, until


def measure(database: Database, folder: Path, *, kills: int, processes: int, track: Track) -> list[float]:
    """Seconds from each SIGKILL to the opening of the next attempt, both by the database's clock."""
    database.begin_anew()
    worker = Runworker(folder / "killed.log", (), ("--processes", str(processes)), **production(database.url))
    seconds = []
    advance = track("takeover", kills)
    try:
        for done in range(1, kills + 1):
            until(lambda: len(worker.children()) == processes, what=lambda: worker.output)
            # Past the age at which a death is that of a young one, and at any point of the others' polling.
            time.sleep(random.uniform(1.0, 1.5))
            seconds.append(_kill_one(database, worker))
            advance(done)
    finally:
        worker.kill()
    return seconds


def _kill_one(database: Database, worker: Runworker) -> float:
    pk = database.submit("held", 1)
    holder = until(
        lambda: database.ask("SELECT worker FROM workflows_attempt WHERE workflow_id = %s", pk),
        what=lambda: worker.output,
    )
    killed_at = database.ask("SELECT clock_timestamp()")
    os.kill(int(holder.rpartition(":")[2]), signal.SIGKILL)
    held_again_at = until(
        lambda: database.ask("SELECT opened_at FROM workflows_attempt WHERE workflow_id = %s AND number = 2", pk),
        what=lambda: worker.output,
    )
    until(
        lambda: database.ask("SELECT status = 'COMPLETE' FROM workflows_workflow WHERE id = %s", pk),
        what=lambda: worker.output,
    )
    return float((held_again_at - killed_at).total_seconds())

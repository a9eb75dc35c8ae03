"""How soon a signal is acted on behind a backlog of fresh submissions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

from rich.table import Table

from tests.benchmark.database import Database, production
from tests.benchmark.progress import Track
from tests.processes import Runworker, until
from tests.servers import ROOT

# Seconds, of the 99th percentile.
GOAL = 1.0
# Milliseconds between two signals: few enough that each finds the workers at the backlog, not at the one before.
EVERY_MS = 50

_WAITING = "SELECT count(*) FROM workflows_workflow WHERE workflow_type = 'awaits' AND waiting_for <> ''"
_WOKEN = "SELECT count(*) FROM workflows_workflow WHERE workflow_type = 'awaits' AND status = 'COMPLETE'"
_SECONDS = """
    SELECT array_agg(extract(epoch FROM a.opened_at - s.created_at)::float)
      FROM workflows_signal s JOIN workflows_attempt a ON a.workflow_id = s.workflow_id AND a.number = 2"""


def measure(
    database: Database,
    folder: Path,
    *,
    signals: int,
    backlog: int,
    processes: int,
    track: Track,
    keep: bool = False,
    meanwhile: Callable[[], object] = lambda: None,
) -> list[float]:
    """Seconds from the storing of each signal to the opening of the attempt that acts on it, by the database's clock.

    `signals` workflows wait; then `backlog` fresh ones are stored, and while workers drain these the signals are sent.
    With `keep` beside the rows that are there. `meanwhile` is done when the first signal has been sent.
    """
    if not signals:
        return []
    if not keep:
        database.begin_anew()
    database.submit("awaits", signals)
    worker = Runworker(folder / "waking.log", (), ("--processes", str(processes)), **production(database.url))
    try:
        until(lambda: database.ask(_WAITING) == signals, seconds=120, what=lambda: worker.output)
        database.submit("no_ops", backlog)
        database.analyze()
        advance = track("waking", signals)
        sender = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmark.sender", str(EVERY_MS)],
            cwd=ROOT,
            env={**production(database.url), "PATH": ""},
        )
        try:
            meanwhile()
            while sender.poll() is None:
                advance(database.ask(_WOKEN))
        finally:
            sender.kill()
            sender.wait()
        until(lambda: database.ask(_WOKEN) == signals, what=lambda: worker.output)
    finally:
        worker.kill()
    left = "SELECT count(*) FROM workflows_workflow WHERE workflow_type = 'no_ops' AND status = 'PENDING'"
    assert database.ask(left) > 0, "the backlog was too small: there was none any more"
    return list(database.ask(_SECONDS))


def table(seconds: Sequence[float]) -> Table:
    rows = Table("signal to taken up again", "seconds")
    rows.add_row("median", f"{median(seconds):.3f}")
    rows.add_row("99th percentile", f"{quantiles([*seconds, *seconds], n=100)[-1]:.3f}")  # it needs two values
    rows.add_row("worst", f"{max(seconds):.3f}")
    rows.add_row("goal of the 99th", f"{GOAL:.3f}")
    return rows

"""Workflows a second: the bare loop and the engine in turns, so that a busy moment of the machine hits both."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.benchmark import STEPS
from tests.benchmark.database import BenchmarkError, Database, production
from tests.benchmark.progress import Track
from tests.processes import Runworker
from tests.servers import ROOT

# Seconds to give up after: some to start, and many times what a slow machine needs for a workflow.
PATIENCE, PATIENCE_PER_WORKFLOW = 60.0, 0.5


class Speed(NamedTuple):
    """Workflows a second; `ratio` is of two neighbours in time."""

    bare: float
    engine: float
    ratio: float


def measure(
    database: Database, folder: Path, *, workflows: int, processes: int, rounds: int, track: Track
) -> list[Speed]:
    """The speed in each round. Logs go into `folder`."""
    measured = []
    for _ in range(rounds):
        bare = _run_bare_loop(database, folder / "bare.log", workflows, processes, track)
        engine = _run_engine(database, folder / "engine.log", workflows, processes, track)
        measured.append(Speed(bare, engine, engine / bare))
    return measured


def medians(measured: Sequence[Speed]) -> Speed:
    return Speed(*(median(values) for values in zip(*measured, strict=True)))


def _run_bare_loop(database: Database, log: Path, workflows: int, processes: int, track: Track) -> float:
    _prepare(database, workflows)
    command = [sys.executable, "-m", "tests.benchmark.bare", database.url, str(STEPS)]
    started: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("wb") as output:
            for _ in range(processes):
                started.append(subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output))
        _wait(database, started, workflows, log, track, "bare loop")
    finally:
        for process in started:
            process.kill()
            process.wait()
    return _rate(database, workflows, first="SELECT min(begun_at) FROM workflows_effect")


def _run_engine(database: Database, log: Path, workflows: int, processes: int, track: Track) -> float:
    _prepare(database, workflows)
    worker = Runworker(log, (), ("--processes", str(processes), "--drain"), **production(database.url))
    try:
        _wait(database, [worker.process], workflows, log, track, "engine")
    finally:
        worker.kill()
    return _rate(database, workflows, first="SELECT min(opened_at) FROM workflows_attempt")


def _prepare(database: Database, workflows: int) -> None:
    database.begin_anew()
    database.submit("no_ops", workflows)
    database.analyze()


def _wait(
    database: Database,
    started: Sequence[subprocess.Popen[bytes]],
    workflows: int,
    log: Path,
    track: Track,
    what: str,
) -> None:
    """Until all processes have ended, which they do when nothing is due any more."""
    give_up_at = time.monotonic() + PATIENCE + PATIENCE_PER_WORKFLOW * workflows
    advance = track(what, workflows)
    while any(process.poll() is None for process in started):
        if time.monotonic() > give_up_at:
            raise BenchmarkError(f"The {what} took too long.\n{_end_of(log)}")
        time.sleep(0.25)
        advance(_count_complete(database))
    if any(process.returncode for process in started) or _count_complete(database) != workflows:
        raise BenchmarkError(f"The {what} has not completed all workflows.\n{_end_of(log)}")


def _count_complete(database: Database) -> int:
    return int(database.ask("SELECT count(*) FROM workflows_workflow WHERE status = 'COMPLETE'"))


def _rate(database: Database, workflows: int, *, first: str) -> float:
    """Workflows a second from the time that `first` asks for, when the first was begun: starting does not count."""
    seconds = database.ask(f"SELECT extract(epoch FROM max(completed_at) - ({first})) FROM workflows_workflow")
    return workflows / float(seconds)


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]

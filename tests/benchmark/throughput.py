"""Workflows a second: the bare loops and the engine in turns, so that a busy moment of the machine hits all of them."""

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


class Drain(NamedTuple):
    """A kind of workflow, and the bare loops that the engine is compared with, each with the ratio that is the goal."""

    workflow_type: str
    steps: str
    goals: dict[str, float]


DRAINS = [
    Drain("no_ops", "once steps", {"recorded": 0.65}),
    Drain("plain", "plain steps", {"two commits": 0.75, "one commit": 0.4}),
]


class Speed(NamedTuple):
    """Workflows a second, of the bare loops too; the ratios are of neighbours in time."""

    bare: list[float]
    engine: float
    ratios: list[float]


def measure(
    database: Database, folder: Path, drain: Drain, *, workflows: int, processes: int, rounds: int, track: Track
) -> list[Speed]:
    """The speed in each round. Logs go into `folder`."""
    measured = []
    for _ in range(rounds):
        bare = []
        for loop in drain.goals:
            _prepare(database, drain.workflow_type, workflows)
            bare.append(_run_bare_loop(database, folder / "bare.log", loop, workflows, processes, track))
        _prepare(database, drain.workflow_type, workflows)
        engine = _run_engine(database, folder / "engine.log", workflows, processes, track)
        measured.append(Speed(bare, engine, [engine / each for each in bare]))
    return measured


def medians(measured: Sequence[Speed]) -> Speed:
    bare, engine, ratios = zip(*measured, strict=True)
    return Speed(_medians(bare), median(engine), _medians(ratios))


def _medians(rows: Sequence[Sequence[float]]) -> list[float]:
    return [median(values) for values in zip(*rows, strict=True)]


def _run_bare_loop(database: Database, log: Path, loop: str, workflows: int, processes: int, track: Track) -> float:
    command = [sys.executable, "-m", "tests.benchmark.bare", database.url, str(STEPS), loop]
    started: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("wb") as output:
            for _ in range(processes):
                started.append(subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output))
        _wait(database, started, workflows, log, track, f"bare loop, {loop}")
    finally:
        for process in started:
            process.kill()
            process.wait()
    return _rate(database, workflows)


def _run_engine(database: Database, log: Path, workflows: int, processes: int, track: Track) -> float:
    worker = Runworker(log, (), ("--processes", str(processes), "--drain"), **production(database.url))
    try:
        _wait(database, [worker.process], workflows, log, track, "engine")
    finally:
        worker.kill()
    return _rate(database, workflows)


def _prepare(database: Database, workflow_type: str, workflows: int) -> None:
    database.begin_anew()
    database.submit(workflow_type, workflows)
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


def _rate(database: Database, workflows: int) -> float:
    """Workflows a second from the end of the first to the end of the last: starting does not count."""
    seconds = database.ask("SELECT extract(epoch FROM max(completed_at) - min(completed_at)) FROM workflows_workflow")
    return (workflows - 1) / float(seconds)


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]

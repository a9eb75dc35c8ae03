"""Workflows a second: the bare loops and the engine in turns, so that a busy moment of the machine hits all of them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.benchmark import STEPS
from tests.benchmark.database import BenchmarkError, Database, production
from tests.benchmark.findings import Finding, Report, ratios, table_of
from tests.benchmark.peers import PEERS, PLAIN, RECORDED
from tests.benchmark.setting import Setting
from tests.processes import Runworker
from tests.servers import ROOT

# Seconds to give up after: some to start, and many times what a slow machine needs for a workflow.
PATIENCE, PATIENCE_PER_WORKFLOW = 60.0, 0.5

ENGINE = "engine"


class Drain(NamedTuple):
    """A kind of workflow, and what the engine is compared with, each with the least ratio that is the goal."""

    workflow_type: str
    steps: str
    times: int  # as many workflows as are asked for
    loops: Mapping[str, float]
    peers: Mapping[str, float]  # those of this kind that have a goal


DRAINS = [
    Drain(
        "plain",
        PLAIN,
        10,
        {"two commits": 0.75, "one commit": 0.4},
        {"procrastinate": 2.0, "django_tasks_db": 2.0},
    ),
    Drain("no_ops", RECORDED, 1, {"recorded": 0.65}, {"dbos": 4.0}),
]


def report(setting: Setting) -> Report:
    """Of both kinds of workflows."""
    shown, every, rounds = [], [], {}
    for drain in DRAINS:
        measured = measure(setting, drain)
        found = findings(drain, measured, setting.missing)
        shown.append(table_of(found, f"{STEPS} {drain.steps}"))
        every += found
        rounds[drain.steps] = measured
    sizes = setting.sizes
    title = f"{sizes.workflows * DRAINS[0].times:,} and {sizes.workflows:,} workflows, {sizes.processes} processes"
    return Report("drain", title, [*shown], every, rounds)


def measure(setting: Setting, drain: Drain) -> list[dict[str, float]]:
    """Workflows a second of each in each round."""
    contestants = _contestants(setting, drain)
    names, rounds = list(contestants), []
    advance = setting.track(f"drain, {drain.steps}", setting.sizes.rounds)
    for number in range(setting.sizes.rounds):
        first = number % len(names)
        speeds = {name: contestants[name]() for name in names[first:] + names[:first]}
        rounds.append({name: speeds[name] for name in names})
        advance(number + 1)
    return rounds


def _contestants(setting: Setting, drain: Drain) -> dict[str, Callable[[], float]]:
    count = setting.sizes.workflows * drain.times
    return {
        **{f"bare loop, {loop}": partial(_run_bare_loop, setting, drain, loop, count) for loop in drain.loops},
        ENGINE: partial(_run_engine, setting, drain, count),
        **{
            each.name: partial(each.drain, max(2, int(count * each.peer.share)), setting.sizes.processes)
            for each in setting.peers
            if each.peer.steps == drain.steps
        },
    }


def findings(drain: Drain, rounds: Sequence[Mapping[str, float]], missing: Mapping[str, str]) -> list[Finding]:
    """The speed of each, and the engine's ratio to each of the others, of neighbours in time."""
    measure = f"drain, {STEPS} {drain.steps}"
    goals = {**{f"bare loop, {loop}": goal for loop, goal in drain.loops.items()}, **drain.peers}
    speeds = {name: [each[name] for each in rounds] for name in rounds[0]}
    absent = {name: why for name, why in missing.items() if PEERS[name].steps == drain.steps}
    return [
        *(Finding(measure, name, speed, "workflows/s") for name, speed in speeds.items()),
        *(
            Finding(measure, f"engine / {name}", ratios(speeds[ENGINE], speed), at_least=goals.get(name))
            for name, speed in speeds.items()
            if name != ENGINE
        ),
        *(
            Finding(measure, f"engine / {name}", [], at_least=goals.get(name), why_none=f"left out: {why}")
            for name, why in absent.items()
        ),
    ]


def _run_bare_loop(setting: Setting, drain: Drain, loop: str, workflows: int) -> float:
    database, log = setting.database, setting.folder / "bare.log"
    _prepare(database, drain.workflow_type, workflows)
    command = [sys.executable, "-m", "tests.benchmark.bare", database.url, str(STEPS), loop]
    started: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("wb") as output:
            for _ in range(setting.sizes.processes):
                started.append(subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output))
        _wait(database, started, workflows, log, f"bare loop, {loop}")
    finally:
        for process in started:
            process.kill()
            process.wait()
    return _rate(database, workflows)


def _run_engine(setting: Setting, drain: Drain, workflows: int) -> float:
    database, log = setting.database, setting.folder / "engine.log"
    _prepare(database, drain.workflow_type, workflows)
    options = ("--processes", str(setting.sizes.processes), "--drain")
    worker = Runworker(log, (), options, **production(database.url))
    try:
        _wait(database, [worker.process], workflows, log, ENGINE)
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
    what: str,
) -> None:
    """Until all processes have ended, which they do when nothing is due any more."""
    give_up_at = time.monotonic() + PATIENCE + PATIENCE_PER_WORKFLOW * workflows
    while any(process.poll() is None for process in started):
        if time.monotonic() > give_up_at:
            raise BenchmarkError(f"The {what} took too long.\n{_end_of(log)}")
        time.sleep(0.1)
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

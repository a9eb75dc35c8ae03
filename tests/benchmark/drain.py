"""Workflows a second, of plain and of recorded steps, beside bare loops and the peers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from tests.benchmark import STEPS
from tests.benchmark.database import BenchmarkError, Database
from tests.benchmark.findings import Finding, Report, in_turns, ratios
from tests.benchmark.inside import Inside
from tests.benchmark.peers import PEERS, PLAIN, RECORDED
from tests.benchmark.peers.contest import running
from tests.benchmark.setting import Setting
from tests.processes import until

# Seconds to give up after: some to start, and many times what a slow machine needs for a workflow.
PATIENCE, PATIENCE_PER_WORKFLOW = 60.0, 0.5

ENGINE = "engine"


class Drain(NamedTuple):
    """A kind of workflow, and the least ratio to others that is the goal: to bare loops, to peers of this kind, and to
    workflows of another type."""

    workflow_type: str
    steps: str
    times: int  # as many workflows as are asked for
    loops: Mapping[str, float]
    peers: Mapping[str, float]
    types: Mapping[str, float] = MappingProxyType({})


DRAINS = [
    Drain(
        *("plain", PLAIN, 10),
        loops={"bare loop, two commits": 0.75, "bare loop, one commit": 0.4},
        peers={"procrastinate": 2.0, "django_tasks_db": 2.0},
    ),
    Drain("no_ops", RECORDED, 1, loops={"bare loop, recorded": 0.65}, peers={"dbos": 4.0}),
    Drain("secrets", "recorded, with secrets", 1, loops={}, peers={}, types={"no_ops": 0.95}),
]


def report(setting: Setting) -> Report:
    found, rounds, sizes = [], {}, setting.sizes
    for drain in DRAINS:
        told = in_turns(_contestants(setting, drain), sizes.rounds, f"drain, {drain.steps}")
        rounds[drain.steps] = told
        found += findings(drain, told, setting.missing)
    title = f"{sizes.workflows * DRAINS[0].times:,} and {sizes.workflows:,} workflows, {sizes.processes} processes"
    return Report(title, found, rounds)


def _contestants(setting: Setting, drain: Drain) -> dict[str, Callable[[], float]]:
    """What lets each of them do its share, and returns the workflows a second."""
    count = setting.sizes.workflows * drain.times
    return {
        **{loop: partial(_run_bare_loop, setting, drain, loop, count) for loop in drain.loops},
        **{name: partial(_run_engine, setting, name, count) for name in drain.types},
        ENGINE: partial(_run_engine, setting, drain.workflow_type, count),
        **{
            each.name: partial(each.drain, max(2, int(count * each.peer.share)), setting.sizes.processes)
            for each in setting.peers
            if each.peer.steps == drain.steps
        },
    }


def findings(drain: Drain, rounds: Sequence[Mapping[str, float]], missing: Mapping[str, str]) -> list[Finding]:
    """The speed of each, and the engine's ratio to each of the others, of neighbours in time."""
    goals = {**drain.loops, **drain.peers, **drain.types}
    speeds = {name: [each[name] for each in rounds] for name in rounds[0]}
    to = {name: ratios(speeds[ENGINE], speed) for name, speed in speeds.items() if name != ENGINE}
    why = {name: f"left out: {how}" for name, how in missing.items() if PEERS[name].steps == drain.steps}
    measure = f"drain, {STEPS} {drain.steps}"
    return [
        *(Finding(measure, name, speed, "workflows/s") for name, speed in speeds.items()),
        *(
            Finding(measure, f"engine / {name}", to.get(name, []), "", goals.get(name), why_none=why.get(name, ""))
            for name in [*to, *why]
        ),
    ]


def _run_bare_loop(setting: Setting, drain: Drain, loop: str, workflows: int) -> float:
    database, log = setting.database, setting.folder / "bare.log"
    _prepare(database, drain.workflow_type, workflows)
    command = [sys.executable, "-m", "tests.benchmark.bare", database.url, str(STEPS), loop]
    with running(command, setting.sizes.processes, log) as started:
        patience = PATIENCE + PATIENCE_PER_WORKFLOW * workflows
        until(lambda: all(each.poll() is not None for each in started), seconds=patience, what=log.read_text)
    return _rate(database, workflows, log.read_text())


def _run_engine(setting: Setting, workflow_type: str, workflows: int) -> float:
    _prepare(setting.database, workflow_type, workflows)
    with setting.working("--drain") as worker:
        worker.wait(PATIENCE + PATIENCE_PER_WORKFLOW * workflows)
        return _rate(setting.database, workflows, worker.output)


def _prepare(database: Database, workflow_type: str, workflows: int) -> None:
    database.begin_anew()
    with Inside(database.url, "tests.benchmark.worker:submit") as submit:
        submit(workflow_type, workflows)
    database.analyze()


def _rate(database: Database, workflows: int, printed: str) -> float:
    """Workflows a second from the end of the first to the end of the last: starting does not count."""
    if (done := database.count("status = 'COMPLETE'")) != workflows:
        raise BenchmarkError(f"{done} of {workflows} workflows are complete.\n{printed[-2000:]}")
    seconds = database.ask("SELECT extract(epoch FROM max(completed_at) - min(completed_at)) FROM workflows_workflow")
    return (workflows - 1) / float(seconds)

"""How soon an idle worker takes up a submission, and what it costs while it is idle; beside the peers."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial

from tests.benchmark.findings import Finding, Report, in_turns, percentile
from tests.benchmark.processor import SESSIONS, seconds_of
from tests.benchmark.setting import Setting
from tests.processes import Runworker, until

# So many are not counted: what first wants doing may have to wait until a worker has started.
FIRST = 4
# Seconds, until workers that have had something to do are idle again; and after which none of them lives.
TO_REST, PATIENCE = 3.0, 300.0
OURS = "ours"
# Milliseconds, and percent of a core.
P50_GOAL, P99_GOAL, IDLE_GOAL = 10, 40, 1.0


def report(setting: Setting) -> Report:
    """From the storing of a submission to the opening of its attempt, by the database's clock.

    Ours, and then each peer's, in turns. All workers wait the whole time, each of them on its own database.
    """
    sizes = setting.sizes
    setting.database.begin_anew()
    with ExitStack() as stack:
        worker = stack.enter_context(setting.working())
        intake = stack.enter_context(setting.serving("entered"))
        ours = partial(_pace, setting, intake.port)
        ours(FIRST)
        time.sleep(TO_REST)
        share = _share_at_rest(setting, worker)
        for each in setting.peers:
            stack.enter_context(each.working(sizes.processes))
        for each in setting.peers:
            each.pace(FIRST, sizes.every)
        count = max(2, sizes.submissions // sizes.rounds)
        contestants = {each.name: partial(each.pace, count, sizes.every) for each in setting.peers}
        rounds = in_turns({OURS: partial(ours, count), **contestants}, sizes.rounds, "picked up")
    found = [
        Finding("pickup", "median", _percentiles(rounds, OURS, 50), "ms", at_most=P50_GOAL),
        Finding("pickup", "99th percentile", _percentiles(rounds, OURS, 99), "ms", at_most=P99_GOAL),
        Finding("pickup", "worst", _percentiles(rounds, OURS, 100), "ms"),
        Finding("pickup", "an idle worker and its sessions", [share * 100], "% of a core", at_most=IDLE_GOAL),
        *(
            Finding("pickup", f"{name}, {what}", _percentiles(rounds, name, percent), "ms")
            for name in contestants
            for what, percent in (("median", 50), ("99th percentile", 99))
        ),
    ]
    title = f"by idle workers, {sizes.submissions:,} submissions, {sizes.processes} processes"
    return Report(title, found, {"milliseconds": rounds, "share_of_a_core": share})


def _percentiles(rounds: list[dict[str, list[float]]], name: str, percent: float) -> list[float]:
    return [percentile(each[name], percent) for each in rounds]


def _share_at_rest(setting: Setting, worker: Runworker) -> float:
    """The share of a core that one worker and its sessions use while nothing is to be done."""

    def used() -> float:
        sessions: list[int] = setting.database.ask(SESSIONS + "application_name LIKE 'onramp%%'")
        return seconds_of([*worker.children(), *(sessions or [])])

    before, began = used(), time.monotonic()
    time.sleep(setting.sizes.rest)
    return (used() - before) / (time.monotonic() - began) / setting.sizes.processes


def _pace(setting: Setting, port: int, count: int) -> list[float]:
    """Send so many; the milliseconds until each was taken up, in order."""
    database = setting.database
    database.begin_anew()
    setting.submit(port, [{}] * count, setting.sizes.every)
    taken = "SELECT count(*) FROM workflows_attempt WHERE number = 1"
    until(lambda: database.ask(taken) >= count, seconds=PATIENCE, what=lambda: "not all were taken up")
    found: list[float] = database.ask(
        """SELECT array_agg(extract(epoch FROM a.opened_at - w.created_at)::float * 1000)
             FROM workflows_workflow w JOIN workflows_attempt a ON a.workflow_id = w.id AND a.number = 1"""
    )
    return sorted(found)

"""How soon an idle worker takes up what is submitted over HTTP, and what it costs while it is idle."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple
from uuid import uuid4

import httpx

from tests.benchmark.database import BenchmarkError, Database, production
from tests.benchmark.findings import Finding, Report, table_of
from tests.benchmark.processor import seconds_of
from tests.benchmark.setting import Setting
from tests.processes import Runworker, until
from tests.servers import Gunicorn

# So many are not counted: what first wants doing may have to wait until a worker has started.
FIRST = 4
# Seconds, until workers that have had something to do are idle again; and after which none of them lives.
TO_REST, PATIENCE = 3.0, 300.0
OURS = "ours"
# Milliseconds, and percent of a core.
P50_GOAL, P99_GOAL, IDLE_GOAL = 10, 40, 1.0


class Taken(NamedTuple):
    """Milliseconds, the shortest first."""

    times: list[float]

    def percentile(self, percent: float) -> float:
        return self.times[min(len(self.times) - 1, int(percent * len(self.times) / 100))]


def report(setting: Setting) -> Report:
    """From the storing of a submission to the opening of its attempt, by the database's clock."""
    sizes = setting.sizes
    environment = {
        **production(setting.database.url),
        "WORKFLOWS": "tests.benchmark.definitions.ENTERED",
        "SUBMISSION_WORKFLOW": "entered",
        "ALLOWED_HOSTS": "localhost",
    }
    setting.database.begin_anew()
    with ExitStack() as stack:
        log = setting.folder / "idle.log"
        worker = Runworker(log, (), ("--processes", str(sizes.processes)), **environment)
        stack.callback(worker.kill)
        intake = Gunicorn("config.intake", setting.folder / "intake.log", setting.database.url, **environment)
        stack.enter_context(intake)
        _warm_up(setting, intake.port)
        share = _share_at_rest(setting, worker)
        for each in setting.peers:
            stack.enter_context(each.working(sizes.processes))
        for each in setting.peers:
            each.pace(FIRST, sizes.every)
        rounds = list(_rounds(setting, intake.port))
    ours = [each[OURS] for each in rounds]
    found = [
        Finding("pickup", "median", [each.percentile(50) for each in ours], "ms", at_most=P50_GOAL),
        Finding("pickup", "99th percentile", [each.percentile(99) for each in ours], "ms", at_most=P99_GOAL),
        Finding("pickup", "worst", [each.times[-1] for each in ours], "ms"),
        Finding("pickup", "an idle worker and its sessions", [share * 100], "% of a core", at_most=IDLE_GOAL),
        *(
            Finding("pickup", f"{each.name}, {what}", [taken[each.name].percentile(percent) for taken in rounds], "ms")
            for each in setting.peers
            for what, percent in (("median", 50), ("99th percentile", 99))
        ),
    ]
    milliseconds = [{name: taken.times for name, taken in each.items()} for each in rounds]
    figures = {"milliseconds": milliseconds, "share_of_a_core": share}
    title = f"by idle workers, {sizes.submissions:,} submissions, {sizes.processes} processes"
    return Report("pickup", title, [table_of(found)], found, figures)


def _share_at_rest(setting: Setting, worker: Runworker) -> float:
    """The share of a core that one worker and its sessions use while nothing is to be done."""

    def used() -> float:
        sessions: list[int] = setting.database.ask(
            "SELECT array_agg(pid) FROM pg_stat_activity WHERE application_name LIKE 'onramp%%'"
        )
        return seconds_of([*worker.children(), *(sessions or [])])

    before, began = used(), time.monotonic()
    time.sleep(setting.sizes.rest)
    return (used() - before) / (time.monotonic() - began) / setting.sizes.processes


def _rounds(setting: Setting, port: int) -> Iterator[dict[str, Taken]]:
    """Ours, and then each peer's, in turns. All workers wait the whole time, each of them on its own database."""
    sizes = setting.sizes
    count = max(2, sizes.submissions // sizes.rounds)
    advance = setting.track("picked up", sizes.rounds)
    for number in range(sizes.rounds):
        setting.database.begin_anew()
        _submit(setting, port, count)
        taken = {OURS: Taken(_times(setting.database, count))}
        taken |= {each.name: Taken(each.pace(count, sizes.every)) for each in setting.peers}
        advance(number + 1)
        yield taken


def _submit(setting: Setting, port: int, count: int) -> None:
    headers = {"Authorization": f"Bearer {setting.key}"}
    with httpx.Client(base_url=f"http://localhost:{port}", headers=headers) as client:
        for _ in range(count):
            answer = client.post("/v1/submissions", json={}, headers={"Idempotency-Key": str(uuid4())})
            if answer.status_code != 202:
                raise BenchmarkError(f"The intake answered {answer.status_code}: {answer.text[:300]}")
            time.sleep(setting.sizes.every / 1000 * random.uniform(0.5, 1.5))


def _warm_up(setting: Setting, port: int) -> None:
    _submit(setting, port, FIRST)
    _times(setting.database, FIRST)
    time.sleep(TO_REST)


def _times(database: Database, count: int) -> list[float]:
    """Milliseconds, the shortest first, once all are taken up."""
    taken = "SELECT count(*) FROM workflows_attempt WHERE number = 1"
    until(lambda: database.ask(taken) >= count, seconds=PATIENCE, what=lambda: "not all were taken up")
    found: list[float] = database.ask(
        """SELECT array_agg(ms ORDER BY ms) FROM (
               SELECT extract(epoch FROM a.opened_at - w.created_at)::float * 1000 AS ms
                 FROM workflows_workflow w JOIN workflows_attempt a ON a.workflow_id = w.id AND a.number = 1) taken"""
    )
    return found

"""What workers do, called one by one in a process with the settings of production (`inside.py`)."""

from __future__ import annotations

import cProfile
import time
from collections.abc import Callable
from statistics import median
from tempfile import TemporaryFile
from time import perf_counter
from uuid import uuid4

from django.db import connections, transaction
from django.db.models.functions import Now

from tests.benchmark.calls import COUNTED, PREPARING
from tests.benchmark.claim import EXPLAINED, FIRST
from tests.benchmark.database import PAYLOAD
from tests.clock import Clock
from tests.plans import Plan, explained
from workflows.definition import definitions
from workflows.engine import claim, heartbeat, lanes, maintenance, worker_boundary
from workflows.engine.claim import DueWorkflows
from workflows.engine.extension import Hooks
from workflows.engine.heartbeat import Heartbeat
from workflows.engine.listening import MAX_IDLE_DELAY
from workflows.engine.loop import Worker
from workflows.engine.process_status import WorkerStatus
from workflows.features.installed import FEATURES
from workflows.intake.submissions import enter
from workflows.models import Workflow
from workflows.postgres import round_trips, wire
from workflows.postgres.jsonb import parse
from workflows.signals import store
from workflows.state import attempt_log
from workflows.stop_flag import Flag

# By the workers' clock: the full looks of the first are few, and each of the others is one.
SECONDS_SHARED, SECONDS_ALONE = 10.0, 1.0

Costs = dict[str, tuple[float, float]]


def submit(workflow_type: str, count: int) -> None:
    """Store so many with a real submission's payload, as the intake does."""
    definition, payload = definitions()[workflow_type], parse(PAYLOAD.read_bytes())
    with transaction.atomic():
        for _ in range(count):
            enter(definition, idempotency_key=uuid4(), payload=payload, submitted_by="benchmark")


def _due() -> DueWorkflows:
    hooks = Hooks.of(FEATURES)
    return DueWorkflows("default", reads=hooks.claim_reads, leaves=hooks.claim_leaves)


def claims(count: int) -> Costs:
    """Claim so many rows: pages of the worst claim, and the median of milliseconds; so of full looks.

    With a worker's own function and statement, prepared on a new connection, from the first claim on. A row that is
    claimed is made COMPLETE, as in a drain; that is not timed. When none is due any more, looks that find nothing are
    measured, too.
    """
    (full,) = _explained(_due(), 1)
    full_seconds, _ = _claim(_due())
    due = _due()
    found = {"claim": _costs(due, count, finds=True)}
    if not _claim(due)[1]:
        found["look that finds nothing"] = _costs(due, count, finds=False)
    return {**found, "full look": (full.buffers, full_seconds * 1000)}


def _costs(due: DueWorkflows, count: int, *, finds: bool) -> tuple[float, float]:
    claimed = [_claim(due) for _ in range(FIRST + count)]
    plans = _explained(due, EXPLAINED)
    assert all(is_one == finds for _, is_one in claimed), "fewer are due, or more"
    pages = max(plan.buffers for plan in plans if not _is_full(plan))
    return pages, median(seconds for seconds, _ in claimed[FIRST:]) * 1000


def _claim(due: DueWorkflows) -> tuple[float, bool]:
    """The seconds that it takes, with the BEGIN that travels with it; and whether it has claimed one."""
    with transaction.atomic(durable=True):
        began = perf_counter()
        found = due.claim_next(thorough=False)
        seconds = perf_counter() - began
        if found:
            Workflow.objects.filter(pk=found.workflow.pk).update(status="COMPLETE", completed_at=Now())
    return seconds, found is not None


def _explained(due: DueWorkflows, times: int) -> list[Plan]:
    plans: list[Plan] = []
    for _ in range(times):
        with explained(plans, which=lambda sql: "looked_at" in sql):
            _claim(due)
    return plans


def _is_full(plan: Plan) -> bool:
    """Whether it has looked from the very start, which one of all workers does four times a second."""
    return all(value == "-infinity" for name, value in plan.parameters.items() if name.endswith("_due"))


def calls() -> dict[str, list[int]]:
    """Process the due workflows one by one: the function calls of each claim; and the exchanges, of others.

    By a clock that stands still: what is done once a second, or after a slow statement, is not counted.
    """
    clock = Clock()
    for module in (claim, heartbeat, lanes, round_trips, wire, worker_boundary):
        module.monotonic = clock  # type: ignore[attr-defined]
    worker = Worker(queue="default", name="calls:1", features=FEATURES, stopping=Flag())
    for _ in range(PREPARING):
        assert worker.process_next()
    made = [_function_calls(worker.process_next) for _ in range(COUNTED)]
    return {"calls": made, "exchanges": [_exchanges(worker.process_next) for _ in range(COUNTED)]}


def _function_calls(process_next: Callable[[], bool]) -> int:
    with cProfile.Profile() as profile:
        assert process_next()
    # The profile sees itself being ended.
    return sum(entry.callcount for entry in profile.getstats()) - 1


def _exchanges(process_next: Callable[[], bool]) -> int:
    """How often the server answers one of the worker's sessions, as libpq itself writes it down."""
    sessions = [connections[alias].connection.pgconn for alias in connections if connections[alias].connection]
    with TemporaryFile("w+") as told:
        for session in sessions:
            session.trace(told.fileno())
        assert process_next()
        for session in sessions:
            session.untrace()
        told.seek(0)
        return told.read().count("ReadyForQuery")


class Idle:
    """A worker that has nothing to do."""

    def __init__(self, number: int) -> None:
        self.due = _due()
        self.heartbeat = Heartbeat(f"idle:{number}", "default")

    def look(self) -> None:
        with transaction.atomic(durable=True):
            assert self.due.claim_next(thorough=False) is None

    def beat(self) -> None:
        self.heartbeat.beat(WorkerStatus(), None)
        self.due.live_workers = self.heartbeat.live_workers


def idle(count: int) -> dict[str, float]:
    """Do what so many idle workers do; the seconds that it takes of each second.

    By a clock that goes on as they do: each polls as often as an idle worker does at most, and none of them waits.
    """
    claim.monotonic = heartbeat.monotonic = clock = Clock()  # type: ignore[attr-defined]
    attempt_log.connect()
    workers = [Idle(number) for number in range(count)]

    def take(seconds: float, *does: Callable[[Idle], None]) -> list[float]:
        taken = [0.0 for _ in does]
        for _ in range(round(seconds / MAX_IDLE_DELAY)):
            for worker in workers:
                clock.now += MAX_IDLE_DELAY / count
                for place, do in enumerate(does):
                    began = perf_counter()
                    do(worker)
                    taken[place] += perf_counter() - began
        return [each / seconds for each in taken]

    take(2 * MAX_IDLE_DELAY, Idle.look)  # they have just started, and know nothing of each other
    (alone,) = take(SECONDS_ALONE, Idle.look)
    take(2.0, Idle.beat)
    shared, beats = take(SECONDS_SHARED, Idle.look, Idle.beat)
    return {"looks, each worker by itself": alone, "looks, full ones shared": shared, "heartbeats": beats}


def maintain() -> dict[str, float]:
    """Do all maintenance tasks until no slice changes anything: rows changed, seconds, the longest slice."""
    rows, longest, begun = 0, 0.0, perf_counter()
    for task in maintenance.tasks_of(FEATURES).values():
        changed, after = 1, 0
        while changed or after:
            started = perf_counter()
            changed, after, _ = maintenance.do_slice(task, after)
            longest = max(longest, perf_counter() - started)
            rows += changed
    return {"rows": rows, "seconds": perf_counter() - begun, "longest slice": longest}


def send_signals(every_ms: int) -> None:
    """Send each workflow that waits its signal, one every so many milliseconds."""
    for pk in Workflow.objects.filter(workflow_type="awaits").order_by("?").values_list("pk", flat=True):
        store.send(source="benchmark", dedupe_key=str(pk), name="paid", workflow_id=pk, payload={})
        time.sleep(every_ms / 1000)

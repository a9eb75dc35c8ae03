"""python -m tests.benchmark.looks WORKERS: do what so many idle workers do, and print what it takes of each second.

By a clock that goes on as they do: each polls as often as an idle worker does at most, and none of them waits.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from time import perf_counter

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from django.db import transaction  # noqa: E402 (needs the settings)

from tests.clock import Clock  # noqa: E402
from workflows.engine import claim, heartbeat  # noqa: E402
from workflows.engine.claim import DueWorkflows  # noqa: E402
from workflows.engine.heartbeat import Heartbeat  # noqa: E402
from workflows.engine.listening import MAX_IDLE_DELAY  # noqa: E402
from workflows.engine.process_status import WorkerStatus  # noqa: E402
from workflows.state import attempt_log  # noqa: E402

# By the workers' clock: the full looks of the first are few, and each of the others is one.
SECONDS_SHARED, SECONDS_ALONE = 10.0, 1.0


class Idle:
    """A worker that has nothing to do."""

    def __init__(self, number: int) -> None:
        self.due = DueWorkflows("default")
        self.heartbeat = Heartbeat(f"idle:{number}", "default")

    def look(self) -> None:
        with transaction.atomic(durable=True):
            assert self.due.claim_next(thorough=False) is None

    def beat(self) -> None:
        self.heartbeat.beat(WorkerStatus(), None)
        self.due.live_workers = self.heartbeat.live_workers


class Idlers:
    def __init__(self, count: int, clock: Clock) -> None:
        self._workers = [Idle(number) for number in range(count)]
        self._clock = clock

    def take(self, seconds: float, *does: Callable[[Idle], None]) -> list[float]:
        """Let them do these things for so long, at each poll; what each thing took, a second."""
        taken = [0.0 for _ in does]
        for _ in range(round(seconds / MAX_IDLE_DELAY)):
            for worker in self._workers:
                self._clock.now += MAX_IDLE_DELAY / len(self._workers)
                for place, do in enumerate(does):
                    began = perf_counter()
                    do(worker)
                    taken[place] += perf_counter() - began
        return [each / seconds for each in taken]


def main(count: int) -> dict[str, float]:
    claim.monotonic = heartbeat.monotonic = clock = Clock()  # type: ignore[assignment]
    attempt_log.connect()
    idlers = Idlers(count, clock)
    idlers.take(2 * MAX_IDLE_DELAY, Idle.look)  # they have just started, and know nothing of each other
    (alone,) = idlers.take(SECONDS_ALONE, Idle.look)
    idlers.take(2.0, Idle.beat)
    shared, beats = idlers.take(SECONDS_SHARED, Idle.look, Idle.beat)
    return {"looks, each worker by itself": alone, "looks, full ones shared": shared, "heartbeats": beats}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))  # noqa: T201 (what the benchmark reads)

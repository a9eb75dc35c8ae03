"""Two who do something at a manual task from the same moment, over and over."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from django.db import connection, connections

from tests import engine
from workflows.errors import NotAllowed
from workflows.models import ManualTask, Workflow

ROUNDS = 60

# Seconds by which either of the two starts later, at the most, before it is known how long their calls take.
STAGGER = 0.002


class Rivals:
    """The test's thread and one more, each with a connection of its own that it keeps from round to round.

    `took`: how long the call of each took in the round before, in seconds. On a busy machine that is many times more.
    """

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(max_workers=1)
        self.barrier = Barrier(2, timeout=10)
        self.took = [STAGGER, STAGGER]
        self.rounds = 0

    def race(self, first: Callable[[], Any], second: Callable[[], Any]) -> tuple[Any, Any]:
        """What each returned, or its refusal. In the first round the first is done before the second begins, in the
        next round the other way: each has been the first, whatever the machine. From then on both are under way."""
        self.rounds += 1
        if self.rounds == 1:
            return self._run(0, first), self.pool.submit(self._run, 1, second).result(timeout=30)
        if self.rounds == 2:
            others = self.pool.submit(self._run, 1, second).result(timeout=30)
            return self._run(0, first), others
        stagger = max(STAGGER, 1.5 * max(self.took))
        other = self.pool.submit(self._at_once, 1, second, stagger)
        return self._at_once(0, first, stagger), other.result(timeout=30)

    def _at_once(self, number: int, call: Callable[[], Any], stagger: float) -> Any:
        connection.ensure_connection()
        later = random.uniform(0, stagger)
        self.barrier.wait()
        time.sleep(later)
        return self._run(number, call)

    def _run(self, number: int, call: Callable[[], Any]) -> Any:
        began = time.monotonic()
        try:
            return call()
        except NotAllowed as refusal:
            return refusal
        finally:
            self.took[number] = time.monotonic() - began

    def close(self) -> None:
        self.pool.submit(connections.close_all).result(timeout=10)
        self.pool.shutdown()


def kinds(task: ManualTask) -> list[str]:
    return engine.kinds(Workflow(pk=task.workflow_id))

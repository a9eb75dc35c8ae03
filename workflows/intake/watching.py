"""WAIT: delay answers until their workflows have finished. One query every EVERY seconds serves a whole process."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Executor
from uuid import UUID

from workflows.models import Workflow
from workflows.postgres.deadlines import DatabaseUnavailable, query_in_time

EVERY = 0.2
# While so many requests wait, a further one is answered at once.
MOST_WAITING = 1_000


class Watch:
    """The requests of one loop that wait for workflows. `threads` run the queries."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._waiting: defaultdict[UUID, set[asyncio.Future[None]]] = defaultdict(set)
        self._looking: asyncio.Task[None] | None = None

    async def until_finished(self, key: UUID, seconds: float) -> bool:
        """Wait until the workflow with this key has finished or is gone, or for `seconds`.

        Returns False at once if too many requests wait.
        """
        if sum(map(len, self._waiting.values())) >= MOST_WAITING:
            return False
        loop = asyncio.get_running_loop()
        finished = loop.create_future()
        self._waiting[key].add(finished)
        if self._looking is None or self._looking.done():
            self._looking = loop.create_task(self._look())
        await asyncio.wait([finished], timeout=seconds)
        self._waiting[key].discard(finished)
        if not self._waiting[key]:
            del self._waiting[key]
        return True

    async def _look(self) -> None:
        while self._waiting:
            keys = list(self._waiting)
            try:
                pending = await asyncio.get_running_loop().run_in_executor(self._threads, _still_unfinished, keys)
            except DatabaseUnavailable:
                pending = set()  # the requests go on, and their answers report it
            for key in keys:
                for finished in self._waiting.get(key, ()) if key not in pending else ():
                    if not finished.done():
                        finished.set_result(None)
            await asyncio.sleep(EVERY)


def _still_unfinished(keys: Iterable[UUID]) -> set[UUID]:
    rows = Workflow.objects.filter(idempotency_key__in=keys, status=Workflow.Status.PENDING)
    return query_in_time(lambda: set(rows.values_list("idempotency_key", flat=True)))

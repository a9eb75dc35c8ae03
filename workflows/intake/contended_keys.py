"""CONTENDED KEYS: submissions with a key that another transaction holds.

A statement that meets such a key stores nothing until that transaction ends. So each of these submissions gets its own
statement, on another connection, and the batches do not wait. Nothing goes back into a batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from uuid import UUID

from workflows.intake.batch import Row
from workflows.intake.connection import Link

# Seconds that a row waits for another transaction: the first time, short, because most of the rows behind it are not
# held up; and each time after that.
FIRST_LOCK_TIMEOUT = 0.02
LOCK_TIMEOUT = 0.2

# Seconds for which a held key is remembered. A submission with that key is kept out of the batches.
REMEMBERED = 60.0
MOST_REMEMBERED = 10_000

Store = Callable[[Link, Row, float], Awaitable[bool]]


class ContendedKeys:
    """`store` stores a row, or says that its key is held. `seconds`: how long its connection may be silent."""

    def __init__(self, store: Store, *, seconds: float) -> None:
        self.link = Link(seconds=seconds)
        self.working: asyncio.Task[None] | None = None
        self._store = store
        self._new: deque[Row] = deque()
        self._held: deque[Row] = deque()
        self._known: dict[UUID, float] = {}

    def knows(self, key: UUID) -> bool:
        """Whether another transaction held this key a moment ago."""
        return bool(self._known) and self._known.get(key, 0.0) > asyncio.get_running_loop().time()

    def put(self, rows: Iterable[Row]) -> None:
        self._new.extend(rows)
        if self.working is None or self.working.done():
            self.working = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Try each new row, and then those that were held, one after the other, until they are answered."""
        while self._new or self._held:
            row, patience = (
                (self._new.popleft(), FIRST_LOCK_TIMEOUT) if self._new else (self._held.popleft(), LOCK_TIMEOUT)
            )
            if row.is_answered:
                continue
            if await self._store(self.link, row, patience):
                self._known.pop(row.key, None)
            else:
                self._remember(row.key)
                self._held.append(row)

    def _remember(self, key: UUID) -> None:
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[key] = asyncio.get_running_loop().time() + REMEMBERED

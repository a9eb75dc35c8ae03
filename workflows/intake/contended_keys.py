"""CONTENDED KEYS: submissions whose key another transaction has locked.

A statement that meets such a key stores nothing until that transaction ends. So each of these submissions gets its own
statement, on another connection, and the batches do not wait. Nothing returns to a batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from uuid import UUID

from workflows.intake.batch import Row
from workflows.intake.connection import Link

# Seconds that a row waits for another transaction. The first wait is short, because most of the rows behind it are not
# blocked; the second value is for all later waits.
FIRST_LOCK_TIMEOUT = 0.02
LOCK_TIMEOUT = 0.2

# Seconds for which a locked key is remembered; submissions with that key are kept out of the batches.
REMEMBERED = 60.0
MOST_REMEMBERED = 10_000

Store = Callable[[Link, Row, float], Awaitable[bool]]


class ContendedKeys:
    """`store` stores a row, or returns False if its key is locked. `seconds`: how long its connection may be silent."""

    def __init__(self, store: Store, *, seconds: float) -> None:
        self.link = Link(seconds=seconds)
        self.working: asyncio.Task[None] | None = None
        self._store = store
        self._new: deque[Row] = deque()
        self._locked: deque[Row] = deque()
        self._known: dict[UUID, float] = {}

    def knows(self, key: UUID) -> bool:
        """Whether another transaction locked this key a moment ago."""
        return bool(self._known) and self._known.get(key, 0.0) > asyncio.get_running_loop().time()

    def put(self, rows: Iterable[Row]) -> None:
        self._new.extend(rows)
        if self.working is None or self.working.done():
            self.working = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Try each new row, then those whose keys were locked, in turn, until they are answered."""
        while self._new or self._locked:
            row, patience = (
                (self._new.popleft(), FIRST_LOCK_TIMEOUT) if self._new else (self._locked.popleft(), LOCK_TIMEOUT)
            )
            if row.is_answered:
                continue
            if await self._store(self.link, row, patience):
                self._known.pop(row.key, None)
            else:
                self._remember(row.key)
                self._locked.append(row)

    def _remember(self, key: UUID) -> None:
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[key] = asyncio.get_running_loop().time() + REMEMBERED

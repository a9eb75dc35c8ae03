"""BATCHES: submissions wait here for their turn. One batch at a time is stored, and answered after its commit."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from workflows.definition import WorkflowDefinition
from workflows.intake.batch import Batch, Row, error_for
from workflows.intake.connection import Link, Refused
from workflows.intake.contended_keys import ContendedKeys
from workflows.intake.metrics import GROUP_SIZE, QUEUE
from workflows.intake.submissions import Entry, Submission, find_replays, judge
from workflows.postgres.deadlines import TIMEOUT_SECONDS, DatabaseUnavailable
from workflows.search.search_keys import hashes_of
from workflows.signals import notify

logger = logging.getLogger(__name__)

# The most that may wait, in submissions and in bytes: a second's work, in the memory that a small host can spare.
MOST_ROWS_WAITING = 5_000
MOST_BYTES_WAITING = 64 * 1024 * 1024

# Seconds that a batch waits for another transaction's lock on one of its keys. A client that sends a submission to two
# intakes at once causes a wait of milliseconds.
LOCK_TIMEOUT = 0.1

# After so many refusals in a row the server is out of resources (disk, memory) for any row: the rest are not tried.
MOST_TRIES = 3

# Seconds between two batches. Clients that were answered together send their next submissions together; without the
# pause they would fall into two alternating batches of half the size.
LINGER = 0.001


class Overloaded(Exception):
    """Too much is already waiting. Nothing of the submission was stored."""


class Batches:
    """Stores submissions of one definition, for one event loop. `seconds`: how long each of them waits at most."""

    def __init__(
        self,
        definition: WorkflowDefinition,
        *,
        seconds: float = TIMEOUT_SECONDS,
        most_rows: int = MOST_ROWS_WAITING,
        most_bytes: int = MOST_BYTES_WAITING,
    ) -> None:
        self._definition = definition
        self._seconds = seconds
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._queue: deque[Row] = deque()
        self._rows = self._bytes = 0
        self._link = Link(seconds=seconds)
        self._contended = ContendedKeys(self._store_one, seconds=seconds)
        self._working: asyncio.Task[None] | None = None

    async def enter(self, submission: Submission) -> Entry:
        """Store a submission unless its key exists; return its status, once that is committed.

        Raises what `submissions.enter` raises, and Overloaded. If the caller is cancelled, a submission that has not
        been sent to the database is not stored.
        """
        loop = asyncio.get_running_loop()
        row = Row(
            submission.sealed(self._definition),
            self._definition.linking_id_in(submission.payload.value),
            hashes_of(self._definition, submission.payload.value),
            loop.create_future(),
        )
        del submission
        if self._rows >= self._most_rows or self._bytes + row.size > self._most_bytes:
            raise Overloaded
        self._rows += 1
        self._bytes += row.size
        timer = loop.call_later(self._seconds, row.refuse, DatabaseUnavailable())
        try:
            with QUEUE.track_inprogress():
                self._wait_in_line(row)
                return await row.answer
        finally:
            timer.cancel()
            self._rows -= 1
            self._bytes -= row.size

    async def close(self) -> None:
        """Close the connections. Waiting callers get DatabaseUnavailable."""
        for task in (self._working, self._contended.working):
            if task is not None:
                task.cancel()
        for link in (self._link, self._contended.link):
            await link.close()
        Batch(self._queue).refuse()

    def _wait_in_line(self, row: Row) -> None:
        if self._contended.knows(row.key):
            self._contended.put([row])
            return
        self._queue.append(row)
        if self._working is None or self._working.done():
            self._working = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while batch := Batch.take(self._queue):
            await self._store(batch)
            if len(batch) > 1:
                await asyncio.sleep(LINGER)

    async def _store(self, batch: Batch) -> None:
        """Store a batch in one commit. If PostgreSQL refuses a row, the others are stored nevertheless."""
        try:
            await self._insert(self._link, batch, LOCK_TIMEOUT)
        except Refused as refused:
            if refused.in_the_way:
                self._contended.put(batch.rows)
            elif len(batch) == 1:
                batch.refuse(error_for(refused))
            elif refused.about_values:
                for half in batch.halves():
                    await self._store(half)
            else:
                await self._store_each(batch)
        except Exception as error:
            batch.refuse(_kind_of(error))

    async def _store_each(self, batch: Batch) -> None:
        """Try each row once more, alone, so that only the culprits are refused. Stop if the server has trouble."""
        left = deque(batch.rows)
        tries = MOST_TRIES
        while tries and (one := Batch.take(left, rows=1)):
            try:
                await self._insert(self._link, one, LOCK_TIMEOUT)
                tries = MOST_TRIES
            except Refused as refused:
                if refused.in_the_way:
                    self._contended.put(one)
                else:
                    one.refuse(error_for(refused))
                tries -= refused.out_of_resources
            except Exception as error:
                one.refuse(_kind_of(error))
                tries = 0
        Batch(left).refuse()

    async def _store_one(self, link: Link, row: Row, patience: float) -> bool:
        """Store a row with its own statement. Returns False if its key is locked for longer than `patience`."""
        batch = Batch([row])
        try:
            await self._insert(link, batch, patience)
        except Refused as refused:
            if refused.in_the_way:
                return False
            batch.refuse(error_for(refused))
        except Exception as error:
            batch.refuse(_kind_of(error))
        return True

    async def _insert(self, link: Link, batch: Batch, patience: float) -> None:
        inserted = await link.fetch(*batch.insertion(self._definition, patience))
        GROUP_SIZE.observe(len(batch))
        if inserted:
            notify.announce(self._definition.queue)
        if others := batch.accept(inserted):
            await self._judge(link, others)

    async def _judge(self, link: Link, rows: Sequence[Row]) -> None:
        """Answer rows that were sent before, by a new statement: the INSERT's snapshot does not show earlier rows."""
        submissions = [row.submission for row in rows]
        found = {each[0]: each for each in await link.fetch(*find_replays(self._definition, submissions))}
        for row in rows:
            try:
                row.accept(judge(self._definition, row.submission, found.get(row.key)))
            except Exception as error:
                row.refuse(error)


def _kind_of(error: Exception) -> type[Exception]:
    """The error for each row of a batch after any failure, so that no row waits in vain."""
    if isinstance(error, DatabaseUnavailable):
        return DatabaseUnavailable
    logger.error("A batch could not be stored: %s", type(error).__name__, exc_info=error)
    return RuntimeError

"""BATCH: the submissions that one statement stores, and the result of each."""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any
from uuid import UUID

from django.db import DataError, IntegrityError

from workflows.definition import WorkflowDefinition
from workflows.intake.connection import Refused
from workflows.intake.submissions import (
    INSERT,
    IS_NEW,
    SUBMITTED_BEFORE,
    Entry,
    Submission,
    new_entry,
)
from workflows.postgres.deadlines import DatabaseUnavailable
from workflows.search import search_keys

# Such a statement takes some 20 ms, so nobody waits much longer for the batch ahead. Four of the
# largest submissions fit in a batch.
MOST_ROWS = 250
MOST_BYTES = 1024 * 1024

# The statement itself limits how long it waits for another transaction's lock on a key: behind a pooler, a session
# setting would reach others. `limits` has one row, and is read before the first insert. The arrays are sorted by key,
# and unnest keeps their order: two processes with the same keys lock them in the same order, and do not deadlock.
_ROWS = f"""
    SELECT sent.idempotency_key, %(workflow_type)s, sent.submitted_by, %(queue)s, sent.linking_id, sent.text::jsonb,
           statement_timestamp() + %(expires_after)s::interval, sent.tenant, NULL,
           sent.request_id, %(priority)s::smallint, sent.traceparent, statement_timestamp()
      FROM limits,
           unnest(%(keys)b::uuid[], %(senders)b::text[], %(linking_ids)b::text[], %(texts)b::text[],
                  %(request_ids)b::text[], %(tenants)b::text[], %(traceparents)b::text[])
           AS sent (idempotency_key, submitted_by, linking_id, text, request_id, tenant, traceparent)
     WHERE {IS_NEW.format(key="sent.idempotency_key")}
"""  # noqa: S608 (ours)
_LIMITS = "limits AS MATERIALIZED (SELECT set_config('lock_timeout', %(patience)s, true))"
_ENTERED = f"entered AS ({INSERT.format(rows=_ROWS, target=SUBMITTED_BEFORE)}, idempotency_key)"
# The search keys are stored with their rows or not at all.
_KEYED = """keyed AS (
    INSERT INTO workflows_searchkey (hash, workflow_id, key_id)
    SELECT found.hash, entered.id, %(search_key_id)s::int
      FROM entered JOIN unnest(%(hashed_keys)b::uuid[], %(hashes)b::bytea[]) AS found (idempotency_key, hash)
           USING (idempotency_key))"""
_RESULT = "SELECT idempotency_key, id FROM entered"
_PLAIN = f"WITH {_LIMITS}, {_ENTERED} {_RESULT}"
_WITH_SEARCH_KEYS = f"WITH {_LIMITS}, {_ENTERED}, {_KEYED} {_RESULT}"


@dataclass(slots=True, eq=False)
class Row:
    """A submission that waits to be stored, and its answer.

    `size` is roughly the bytes that it takes: its text, of one to four bytes a character, and each row's overhead.
    """

    submission: Submission
    linking_id: str | None
    hashes: list[bytes]
    answer: Future[Entry]
    key: UUID = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.submission.key
        self.size = getsizeof(self.submission.payload.text) + 500

    @property
    def is_answered(self) -> bool:
        """A row may be answered before it is stored: its client has gone, or has waited too long."""
        return self.answer.done()

    def accept(self, entry: Entry) -> None:
        if not self.is_answered:
            self.answer.set_result(entry)

    def refuse(self, error: Exception) -> None:
        if not self.is_answered:
            self.answer.set_exception(error)


class Batch:
    """Rows with different keys, in the order of their keys."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = sorted(rows, key=lambda row: row.key.int)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @classmethod
    def take(cls, queue: deque[Row], *, rows: int = MOST_ROWS, size: int = MOST_BYTES) -> Batch:
        """Take as many rows from the front of a queue as may go together; at least one, if there is one.

        The second of two equal keys waits, because it is compared with the first one's committed row. Rows that are
        already answered are dropped.
        """
        taken: dict[UUID, Row] = {}
        later: list[Row] = []
        total = 0
        while queue and len(taken) < rows:
            row = queue[0]
            if not row.is_answered:
                if row.key in taken:
                    later.append(row)
                elif taken and total + row.size > size:
                    break
                else:
                    taken[row.key] = row
                    total += row.size
            queue.popleft()
        queue.extendleft(reversed(later))
        return cls(taken.values())

    def halves(self) -> tuple[Batch, Batch]:
        middle = len(self) // 2
        return Batch(self.rows[:middle]), Batch(self.rows[middle:])

    def insertion(self, definition: WorkflowDefinition, patience: float) -> tuple[str, dict[str, Any]]:
        """A statement that stores the batch and returns keys and ids; its parameters. `patience`: seconds per lock."""
        parameters: dict[str, Any] = {
            "workflow_type": definition.name,
            "queue": definition.queue,
            "priority": definition.priority,
            "expires_after": definition.expires_after,
            "patience": f"{round(patience * 1000)}ms",
            "keys": [row.key for row in self],
            "senders": [row.submission.submitted_by for row in self],
            "linking_ids": [row.linking_id for row in self],
            "texts": [row.submission.payload.text for row in self],
            "tenants": [row.submission.tenant for row in self],
            "request_ids": [row.submission.given_request_id for row in self],
            "traceparents": [row.submission.traceparent for row in self],
        }
        hashed = [(row.key, each) for row in self for each in row.hashes]
        if not hashed:
            return _PLAIN, parameters
        keys, hashes = zip(*hashed, strict=True)
        own = {"hashed_keys": list(keys), "hashes": list(hashes), "search_key_id": search_keys.keys()[0].id}
        return _WITH_SEARCH_KEYS, parameters | own

    def accept(self, inserted: Iterable[tuple[UUID, int]]) -> list[Row]:
        """Answer the new rows; return the others, which were sent before."""
        ids = dict(inserted)
        others = []
        for row in self:
            if row.key in ids:
                row.accept(new_entry(ids[row.key], row.key))
            else:
                others.append(row)
        return others

    def refuse(self, kind: type[Exception] = DatabaseUnavailable) -> None:
        """Answer all rows with an error, a new one for each, because an error keeps its traceback."""
        for row in self:
            row.refuse(kind())


def error_for(refused: Refused) -> type[Exception]:
    """The error for a single row that PostgreSQL refuses, as `submissions.enter` raises it."""
    match refused.sqlstate[:2]:
        case "22":
            return DataError
        case "23":
            return IntegrityError
        case _:
            return DatabaseUnavailable

"""PgQueuer, with the driver and the autovacuum that its documentation recommends; its tables survive a crash.

https://pgqueuer.readthedocs.io/en/latest/guides/performance-tuning/
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
from pgqueuer import PgQueuer
from pgqueuer.db import SyncPsycopgDriver
from pgqueuer.models import Job
from pgqueuer.queries import SyncQueries

from tests.benchmark import STEPS
from tests.benchmark.peers.module import payload

PIECE = 1000

_of_thread = threading.local()


async def do_nothing() -> dict[str, Any]:
    return {}


@asynccontextmanager
async def manager() -> AsyncIterator[PgQueuer]:
    """What `pgq run` is given."""
    connection = await asyncpg.connect()
    queuer = PgQueuer.from_asyncpg_connection(connection)

    @queuer.entrypoint("plain")
    async def plain(job: Job) -> None:
        json.loads(job.payload or b"null")
        for _ in range(STEPS):
            await do_nothing()

    try:
        yield queuer
    finally:
        await connection.close()


def enqueue(payload: Any) -> int:
    (identifier,) = _queries().enqueue("plain", json.dumps(payload).encode())
    return int(identifier)


def fill(count: int) -> None:
    body = json.dumps(payload()).encode()
    for first in range(0, count, PIECE):
        size = min(PIECE, count - first)
        _queries().enqueue(["plain"] * size, [body] * size, [0] * size)


def _queries() -> SyncQueries:
    """On a connection of this thread's."""
    if not hasattr(_of_thread, "queries"):
        _of_thread.queries = SyncQueries(SyncPsycopgDriver(psycopg.connect(autocommit=True)))
    return _of_thread.queries

"""PgQueuer, with the driver and the autovacuum that its documentation recommends; its tables survive a crash."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import asyncpg
import psycopg
from pgqueuer import PgQueuer
from pgqueuer.db import SyncPsycopgDriver
from pgqueuer.models import Job
from pgqueuer.queries import SyncQueries

from tests.benchmark import STEPS


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
    (identifier,) = _queries(threading.get_ident()).enqueue("plain", json.dumps(payload).encode())
    return int(identifier)


@cache
def _queries(thread: int) -> SyncQueries:
    """On a connection of this thread's."""
    return SyncQueries(SyncPsycopgDriver(psycopg.connect(autocommit=True)))

"""DBOS Transact: a workflow of steps, each recorded.

As its documentation advises, the queue's limit is that of each process, and each process has a name of its own.
"""

from __future__ import annotations

import os
import signal
from functools import cache
from typing import Any
from urllib.parse import quote

from dbos import DBOS, DBOSClient

from tests.benchmark import STEPS

QUEUE, NAME = "benchmark", "recorded"
# At a time in each process: so many that those which poll first leave some to the others, and none is ever idle.
AT_A_TIME = 20
# The rest libpq reads from its own variables.
URL = f"postgresql://{quote(os.environ['PGUSER'], safe='')}@/{os.environ['PGDATABASE']}"


@DBOS.step()
def call_nobody(number: int) -> dict[str, Any]:
    return {"reference": "made-up"}


@DBOS.workflow(name=NAME)
def recorded(payload: Any) -> None:
    for number in range(STEPS):
        call_nobody(number)


def prepare() -> None:
    _launch()
    DBOS.destroy()


def work() -> None:
    _launch()
    signal.pause()


def enqueue(payload: Any) -> str:
    return str(_client().enqueue({"queue_name": QUEUE, "workflow_name": NAME}, payload).workflow_id)


def _launch() -> None:
    named = {"name": "benchmark", "executor_id": f"benchmark-{os.getpid()}"}
    DBOS(config={**named, "system_database_url": URL, "log_level": "WARNING"})
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=AT_A_TIME)


@cache
def _client() -> DBOSClient:
    return DBOSClient(system_database_url=URL, application_name="benchmark", system_database_pool_size=8)

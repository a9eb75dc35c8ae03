"""Absurd: a task of steps, each recorded; https://github.com/earendil-works/absurd/tree/main/sdks/python

Its tables are made as its documentation advises: with the SQL that its command brings.
"""

from __future__ import annotations

import threading
from typing import Any

import psycopg
from absurd_sdk import Absurd
from absurdctl import BUNDLED_SCHEMA_SQL

from tests.benchmark import STEPS
from tests.benchmark.peers.module import payload

QUEUE, NAME = "benchmark", "recorded"

_of_thread = threading.local()


def recorded(params: Any, context: Any) -> None:
    for number in range(STEPS):
        context.step(f"step_{number}", lambda: {"reference": "made-up"})


def prepare() -> None:
    with psycopg.connect(autocommit=True) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL)
    _app().create_queue(QUEUE)


def work() -> None:
    app = _app()
    app.register_task(NAME)(recorded)
    app.start_worker()


def enqueue(payload: Any) -> str:
    return str(_app().spawn(NAME, payload, queue=QUEUE)["task_id"])


def fill(count: int) -> None:
    for _ in range(count):
        enqueue(payload())


def _app() -> Absurd:
    """On a connection of this thread's."""
    if not hasattr(_of_thread, "app"):
        _of_thread.app = Absurd(psycopg.connect(autocommit=True), queue_name=QUEUE)
    return _of_thread.app

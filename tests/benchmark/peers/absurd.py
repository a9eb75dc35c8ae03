"""Absurd: a task of steps, each recorded.

Its tables are made as its documentation advises: with the SQL that its command brings.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import psycopg
from absurd_sdk import Absurd
from absurdctl import BUNDLED_SCHEMA_SQL

from tests.benchmark import STEPS

QUEUE, NAME = "benchmark", "recorded"


def recorded(params: Any, context: Any) -> None:
    for number in range(STEPS):
        context.step(f"step_{number}", lambda: {"reference": "made-up"})


def prepare() -> None:
    with psycopg.connect(autocommit=True) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL)
    _app(threading.get_ident()).create_queue(QUEUE)


def work() -> None:
    app = _app(threading.get_ident())
    app.register_task(NAME)(recorded)
    app.start_worker()


def enqueue(payload: Any) -> str:
    return str(_app(threading.get_ident()).spawn(NAME, payload, queue=QUEUE)["task_id"])


@cache
def _app(thread: int) -> Absurd:
    """On a connection of this thread's."""
    return Absurd(psycopg.connect(autocommit=True), queue_name=QUEUE)

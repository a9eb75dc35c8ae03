"""Procrastinate, as its documentation has it run beside Django.

https://procrastinate.readthedocs.io/en/stable/howto/django/basic_usage.html
"""

from __future__ import annotations

from typing import Any

from procrastinate.contrib.django import app

from tests.benchmark import STEPS
from tests.benchmark.peers.module import payload

PIECE = 1000


async def do_nothing() -> dict[str, Any]:
    return {}


@app.task
async def plain(payload: Any) -> None:
    for _ in range(STEPS):
        await do_nothing()


def enqueue(payload: Any) -> int:
    return plain.defer(payload=payload)


def fill(count: int) -> None:
    for first in range(0, count, PIECE):
        plain.batch_defer(*[{"payload": payload()}] * min(PIECE, count - first))

"""Procrastinate, as its documentation has it run beside Django."""

from __future__ import annotations

from typing import Any

from procrastinate.contrib.django import app

from tests.benchmark import STEPS


async def do_nothing() -> dict[str, Any]:
    return {}


@app.task
async def plain(payload: Any) -> None:
    for _ in range(STEPS):
        await do_nothing()


def enqueue(payload: Any) -> int:
    return plain.defer(payload=payload)

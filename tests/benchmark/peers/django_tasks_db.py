"""The database backend of Django's tasks."""

from __future__ import annotations

from typing import Any

from django_tasks import task

from tests.benchmark import STEPS


def do_nothing() -> dict[str, Any]:
    return {}


@task()
def plain(payload: Any) -> None:
    for _ in range(STEPS):
        do_nothing()


def enqueue(payload: Any) -> str:
    return str(plain.enqueue(payload).id)

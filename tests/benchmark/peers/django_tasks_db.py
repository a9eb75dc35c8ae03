"""The database backend of Django's tasks. https://github.com/RealOrangeOne/django-tasks-db"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django_tasks import task

from tests.benchmark import STEPS
from tests.benchmark.peers.module import payload


def do_nothing() -> dict[str, Any]:
    return {}


@task()
def plain(payload: Any) -> None:
    for _ in range(STEPS):
        do_nothing()


def enqueue(payload: Any) -> str:
    return str(plain.enqueue(payload).id)


def fill(count: int) -> None:
    with transaction.atomic():
        for _ in range(count):
            enqueue(payload())

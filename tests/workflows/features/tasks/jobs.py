"""Tasks as a project declares them."""

import asyncio
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from workflows.errors import RetryableStepError, StepError
from workflows.features.tasks.contract import TaskContext
from workflows.tasks import task

seen: list[Any] = []


@task
def add(a: int, b: int) -> int:
    return a + b


@task(takes_context=True)
def look(context: TaskContext, name: str) -> str:
    seen.append((context.task_result.id, context.task_result.status))
    return f"{name} {context.attempt}"


@task
async def wait_a_moment() -> int:
    await asyncio.sleep(0)
    return await User.objects.acount()


@task
async def hang() -> None:
    await asyncio.sleep(60)


@task
def fail(secret: str) -> None:
    User.objects.create(username="half")
    raise ValueError(f"no good: {secret}")


@task
def insist_on_its_own_commit() -> None:
    with transaction.atomic(durable=True):
        pass


@task(retries=2)
def fail_twice() -> str:
    seen.append("tried")
    if len(seen) < 3:
        raise KeyError("a secret")
    return "done"


@task(retries=2)
def give_up() -> None:
    raise StepError("In vain.", code="in_vain")


@task(retries=1)
def be_busy() -> None:
    raise RetryableStepError("The printer is busy.", code="busy")


@task
def return_nonsense() -> object:
    return object()


@task
def enqueue_another() -> str:
    return add.enqueue(1, 1).id

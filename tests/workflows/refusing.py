"""A server that refuses what the engine says, steps that call, and a worker that loses their workflow by that."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import Error, connections

from tests.engine import kinds, last_attempt, worker
from workflows.errors import ClaimLost
from workflows.models import Workflow
from workflows.waits import require_approval, wait_for_time

CALLED: list[str] = []


def say_one(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": 1}


def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    CALLED.append("call")
    return {"number": 1}


def pause(*, workflow: Workflow, context: Any) -> None:
    wait_for_time(workflow, "pause", timedelta(0))


def ask(*, workflow: Workflow, context: Any) -> None:
    require_approval(workflow, "review", question="May it go on?", timeout=timedelta(hours=1))


def call_and(then: Callable[[], None]) -> Any:
    def function(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        CALLED.append("call")
        then()
        return {"number": 1}

    return function


def lose(workflow: Workflow) -> Workflow:
    """Let a worker take it and lose it, and find its way again."""
    this = worker()
    with pytest.raises((ClaimLost, Error)):
        this.process_next()
    this.in_hand.close_lost()
    return Workflow.objects.get(pk=workflow.pk)


def assert_put_back(workflow: Workflow) -> None:
    assert (workflow.status, workflow.retry_count, workflow.last_error_class) == ("PENDING", 0, "")
    assert (kinds(workflow), last_attempt(workflow).outcome) == (["lost"], "lost")


@contextmanager
def refused(words: str, alias: str, sqlstate: str = "XX000") -> Iterator[None]:
    """Have the server refuse one statement with these words in it, once, as it would by itself."""
    waiting = [words]

    def refuse(execute: Callable[..., Any], sql: str, params: Any, *rest: Any) -> Any:
        if waiting and waiting[0] in sql:
            waiting.pop()
            sql, params = f"DO $$ BEGIN RAISE EXCEPTION 'so it goes' USING ERRCODE = '{sqlstate}'; END $$", None
        return execute(sql, params, *rest)

    with connections[alias].execute_wrapper(refuse):
        yield
    assert not waiting, f"no statement with {words!r}"

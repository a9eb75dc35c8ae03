"""What `history` runs in the tree of another commit: it uses only what all of them have, wherever that stands there."""

from __future__ import annotations

import asyncio
import cProfile
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median_low
from tempfile import TemporaryFile
from typing import Any
from uuid import uuid4

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()

from django.core.management import call_command
from django.db import connection, connections
from pydantic import BaseModel

from workflows.definition import Step, WorkflowDefinition

PREPARING, COUNTED = 20, 11
STEPS = 21


class Context(BaseModel):
    reference: str | None = None


def nothing(*, workflow: Any, context: Any) -> dict[str, Any]:
    return {}


def call(*, workflow: Any, context: Any) -> dict[str, Any]:
    return {"reference": "made-up"}


def _defined(name: str, *steps: Step) -> WorkflowDefinition:
    return WorkflowDefinition(name=name, context_class=Context, steps=[*steps])


NAMES = [f"step_{number}" for number in range(STEPS)]
ONE = _defined("one", Step(nothing, name="step"))
PLAIN = _defined("plain", *(Step(nothing, name=name) for name in NAMES))
RECORDED = _defined(
    "recorded",
    *(Step(call, once=True, name=name, key_ttl=timedelta(days=1), returns=("reference",)) for name in NAMES),
)
ENTERED = _defined("entered", Step(nothing, name="step"))


def main() -> None:
    connection.ensure_connection()  # before the clock stands still
    stop_clocks()
    flag = importlib.import_module("workflows.stop_flag").Flag()
    kind = _first("Worker", "workflows.engine.loop", "workflows.worker.loop")
    more = {}
    if "features" in inspect.signature(kind).parameters:
        more["features"] = importlib.import_module("workflows.features.installed").FEATURES
    worker = kind(queue="default", name="history:1", stopping=flag, **more)
    counts = {}
    for name in ("one", "plain", "recorded"):
        with connection.cursor() as cursor:
            cursor.execute(
                """INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload)
                   SELECT gen_random_uuid(), %s, '{"patient": {"email": "a@example.com"}}'
                     FROM generate_series(1, %s)""",
                [name, PREPARING + COUNTED + 1],
            )
            counts["indexes"] = _indexes(cursor)
        for _ in range(PREPARING):
            worker.process_next()
        counts[name] = median_low(_calls(worker.process_next) for _ in range(COUNTED))
        sessions = [each.connection.pgconn for each in connections.all() if each.connection]
        counts[f"{name}'s answers"] = _answers(worker.process_next, sessions)
    print(json.dumps(counts | _of_a_submission()))  # noqa: T201


def stop_clocks() -> None:
    """What is done once a second is not counted. All that is imported already reads a clock that stands still."""
    for name in ("workflows.engine.loop", "workflows.worker.loop", "config.intake"):
        if importlib.util.find_spec(name.rpartition(".")[0]) and importlib.util.find_spec(name):
            importlib.import_module(name)
    for name, module in list(sys.modules.items()):
        if name.startswith("workflows.") and hasattr(module, "monotonic"):
            module.monotonic = lambda: 1_000.0  # type: ignore[attr-defined]


def _first(name: str, *modules: str) -> Any:
    for each in modules:
        if importlib.util.find_spec(each.rpartition(".")[0]):
            return getattr(importlib.import_module(each), name)
    raise SystemExit(f"no {name}")


def _calls(do: Callable[[], Any]) -> int:
    with cProfile.Profile() as profile:
        assert do() is not False
    return sum(entry.callcount for entry in profile.getstats()) - 1


def _answers(do: Callable[[], Any], sessions: list[Any]) -> int:
    with TemporaryFile("w+") as told:
        for session in sessions:
            session.trace(told.fileno())
        do()
        for session in sessions:
            session.untrace()
        told.seek(0)
        return told.read().count("ReadyForQuery")


def _indexes(cursor: Any) -> int:
    """How many indexes have an entry for a row that has just been stored."""
    cursor.execute(
        """SELECT coalesce(pg_get_expr(indpred, indrelid), 'true') FROM pg_index
            WHERE indrelid = 'workflows_workflow'::regclass"""
    )
    conditions = [condition for (condition,) in cursor.fetchall()]
    cursor.execute(f"SELECT {', '.join(conditions)} FROM workflows_workflow ORDER BY id DESC LIMIT 1")
    return sum(map(bool, cursor.fetchone()))


def _of_a_submission() -> dict[str, int]:
    with TemporaryFile("w+") as told:
        call_command("createapikey", "history", stdout=told)
        told.seek(0)
        api_key = told.read().split()[-1]
    application, loop = importlib.import_module("config.intake").application, asyncio.new_event_loop()
    body = Path("docs/examples/net_new.json").read_bytes()

    async def submit() -> None:
        headers = {"authorization": f"Bearer {api_key}", "content-type": "application/json"}
        headers |= {"content-length": str(len(body)), "idempotency-key": str(uuid4())}
        sent = [(name.encode(), value.encode()) for name, value in headers.items()]
        answers: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            answers.append(message)

        path = {"path": "/v1/submissions", "raw_path": b"/v1/submissions", "query_string": b""}
        await application({"type": "http", "method": "POST", "headers": sent, **path}, receive, send)
        assert answers[0]["status"] == 202, answers

    for _ in range(PREPARING):
        loop.run_until_complete(submit())
    return {"submission": median_low(_calls(lambda: loop.run_until_complete(submit())) for _ in range(COUNTED))}


if __name__ == "__main__":
    main()

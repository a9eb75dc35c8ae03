"""Definitions for real worker processes. What a step did is seen from outside: a line in a file the payload names."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import connection
from pydantic import BaseModel

from workflows.definition import WorkflowDefinition
from workflows.models import Workflow
from workflows.waits import require_approval


class Context(BaseModel):
    noted: bool = False


def _note(workflow: Workflow, what: str) -> None:
    """Add a line to the payload's log: with O_APPEND, lines of several processes do not mix."""
    log = os.open(workflow.payload["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, f"{workflow.pk} {what} {os.getpid()}\n".encode())
    os.close(log)


def begin(*, workflow: Workflow, context: Context) -> None:
    _note(workflow, "begin")


def note(*, workflow: Workflow, context: Context) -> dict[str, Any]:
    _note(workflow, "note")
    return {"noted": True}


def hold(*, workflow: Workflow, context: Context) -> None:
    """Last until the file `gate` of the payload is there: a step as slow as the test wants it."""
    gate = Path(workflow.payload["gate"])
    give_up_at = time.monotonic() + 120
    while not gate.exists() and time.monotonic() < give_up_at:
        time.sleep(0.02)


def take_some_time(*, workflow: Workflow, context: Context) -> None:
    """Part of it in the database, part of it outside: a connection may be lost in either."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.005)")
    time.sleep(0.005)


def end(*, workflow: Workflow, context: Context) -> None:
    _note(workflow, "end")


def ask(*, workflow: Workflow, context: Context) -> None:
    require_approval(workflow, "review", question="May it go on?", timeout=timedelta(hours=1))


COUNTED = WorkflowDefinition(name="counted", context_class=Context, steps=[note])
HELD = WorkflowDefinition(name="held", context_class=Context, steps=[begin, hold, end])
LOADED = WorkflowDefinition(name="loaded", context_class=Context, steps=[note, take_some_time])
ASKED = WorkflowDefinition(name="asked", context_class=Context, steps=[begin, ask, end])


def kill_the_worker(*, workflow: Workflow, context: Context) -> None:
    os._exit(3)


DEADLY = WorkflowDefinition(name="deadly", context_class=Context, steps=[begin, kill_the_worker])


def sleep_in_the_database(*, workflow: Workflow, context: Context) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [workflow.payload["seconds"]])


QUERYING = WorkflowDefinition(name="querying", context_class=Context, steps=[begin, sleep_in_the_database, end])

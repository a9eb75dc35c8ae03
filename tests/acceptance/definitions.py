"""Definitions for real worker processes. What a step did is seen from outside: a line in a file the payload names."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import connection, connections, transaction
from pydantic import BaseModel

from workflows import outbox
from workflows.definition import Retry, Step, WorkflowDefinition
from workflows.errors import RetryableStepError, StepError
from workflows.features.outages.calls import call_to
from workflows.models import Attempt, Workflow
from workflows.waits import Child, require_approval, wait_for_children, wait_for_signal, wait_for_time


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


def open_order(*, workflow: Workflow, context: Context) -> None:
    outbox.publish("order.opened", {"number": workflow.payload["number"]})


def pay_order(*, workflow: Workflow, context: Context) -> None:
    """Publish, and then fail: for good, or in the first run."""
    outbox.publish("order.paid", {"number": workflow.payload["number"]})
    how = workflow.payload["number"] % 10
    if how == 0:
        raise StepError("The card is declined.", code="card_declined")
    if how in (1, 2) and Attempt.objects.filter(workflow=workflow).exclude(closed_at=None).count() == 0:
        raise RetryableStepError("Busy.", base_delay=0.5)


def end(*, workflow: Workflow, context: Context) -> None:
    _note(workflow, "end")


def use_secret(*, workflow: Workflow, context: Context) -> None:
    """Note whether the step has its own row's secret; slowly, until the file `gate` of the payload is there."""
    if not Path(workflow.payload["gate"]).exists():
        time.sleep(0.05)
    _note(workflow, "right" if workflow.payload["token"] == f"secret-of-{workflow.payload['n']}" else "wrong")


def ask(*, workflow: Workflow, context: Context) -> None:
    require_approval(workflow, "review", question="May it go on?", timeout=timedelta(hours=1))


def collect(*, workflow: Workflow, context: Context) -> None:
    """What Python does now and then by itself."""
    gc.collect()


COLLECTED = WorkflowDefinition(name="collected", context_class=Context, steps=[collect])
COUNTED = WorkflowDefinition(name="counted", context_class=Context, steps=[note])
HELD = WorkflowDefinition(name="held", context_class=Context, steps=[begin, hold, end])
SEALED = WorkflowDefinition(name="sealed", context_class=Context, steps=[use_secret], secret_fields=["token"])
ASKED = WorkflowDefinition(name="asked", context_class=Context, steps=[begin, ask, end])


def kill_the_worker(*, workflow: Workflow, context: Context) -> None:
    os._exit(3)


DEADLY = WorkflowDefinition(name="deadly", context_class=Context, steps=[begin, kill_the_worker])


def do_harm(*, workflow: Workflow, context: Context) -> None:
    """What payloads do to the process that handles them: the payload says which."""
    match workflow.payload["harm"]:
        case "exit":
            os._exit(3)
        case "exit as if all were well":
            os._exit(0)
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "close the streams" | "detach one" | "remove one" as harm:
            for stream in (sys.stdout, sys.stderr):
                stream.write(f"printed by {workflow.pk}\n")
                if harm == "close the streams":
                    stream.close()
            if harm == "detach one":
                sys.stderr.detach()
            elif harm == "remove one":
                sys.stdout = None


def never_return(*, workflow: Workflow, context: Context) -> None:
    """Deaf to every signal but SIGKILL: no timer of this process ends it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    if workflow.payload["harm"] == "loop":
        while True:
            pass
    ctypes.PyDLL(None).sleep(3600)  # in C, and holding the interpreter


STUCK = WorkflowDefinition(
    name="stuck",
    context_class=Context,
    steps=[begin, Step(never_return, timeout=0.5, retry=Retry(max_attempts=2, base_delay=0.1))],
)
HARMFUL = WorkflowDefinition(name="harmful", context_class=Context, steps=[begin, do_harm, end])


def let_go_then_harm(*, workflow: Workflow, context: Context) -> None:
    """Let go at first; followed up, it does what the payload says to its worker."""
    if f"{workflow.pk} let_go " not in Path(workflow.payload["log"]).read_text():
        _note(workflow, "let_go")
        raise RetryableStepError("Not now.")
    _note(workflow, "begin")
    if workflow.payload["harm"] == "loop":
        never_return(workflow=workflow, context=context)
    do_harm(workflow=workflow, context=context)


FOLLOWED = WorkflowDefinition(
    name="followed",
    context_class=Context,
    steps=[Step(let_go_then_harm, best_effort=True, timeout=0.5, follow_up=Retry(base_delay=60))],
)


def fork(workflow: Workflow) -> bool:
    """Whether this is the child, which goes on as the payload says. The parent waits for its end."""
    if (child := os.fork()) == 0:
        _note(workflow, "forked")
        match workflow.payload["then"]:
            case "close":
                connections.close_all()
            case "raise":
                raise StepError("The child's own.")
        return True
    os.waitpid(child, 0)
    return False


def fork_in_a_block(*, workflow: Workflow, context: Context) -> dict[str, Any]:
    with transaction.atomic():
        return {"noted": not fork(workflow)}


def fork_in_a_hook(*, workflow: Workflow, context: Context) -> None:
    transaction.on_commit(lambda: str(fork(workflow)))
    transaction.on_commit(lambda: _note(workflow, "hook"))


FORKING = WorkflowDefinition(name="forking", context_class=Context, steps=[fork_in_a_block, end])
FORKING_HOOK = WorkflowDefinition(name="forking_hook", context_class=Context, steps=[fork_in_a_hook, end])


def hook_that_hangs(*, workflow: Workflow, context: Context) -> None:
    transaction.on_commit(lambda: time.sleep(3600))


HANGING_HOOK = WorkflowDefinition(name="hanging_hook", context_class=Context, steps=[begin, hook_that_hangs, end])


def fail_at_first(*, workflow: Workflow, context: Context) -> None:
    with call_to("letters") as call:
        time.sleep(0.05)
        if workflow.retry_count == 0:
            call.unavailable()
    if workflow.retry_count == 0:
        raise RetryableStepError(f"Not now, {workflow.payload['name']}.", code="not_now", base_delay=0.1)


FAILING_AT_FIRST = WorkflowDefinition(name="failing_at_first", context_class=Context, steps=[begin, fail_at_first, end])


def call_slowly(*, workflow: Workflow, context: Context) -> None:
    with call_to("letters"):
        _note(workflow, "calls")
        time.sleep(1)
        _note(workflow, "called")


CALLING_SLOWLY = WorkflowDefinition(name="calling_slowly", context_class=Context, steps=[call_slowly])


def take_seconds(*, workflow: Workflow, context: Context) -> None:
    time.sleep(workflow.payload["seconds"])


SLOW = WorkflowDefinition(name="slow", context_class=Context, steps=[begin, take_seconds, end])


def sleep_in_the_database(*, workflow: Workflow, context: Context) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [workflow.payload["seconds"]])


QUERYING = WorkflowDefinition(name="querying", context_class=Context, steps=[begin, sleep_in_the_database, end])


def wait(*, workflow: Workflow, context: Context) -> None:
    """Wait as the payload says; `seconds` is how long, if nothing comes."""
    limit = timedelta(seconds=workflow.payload.get("seconds", 3600))
    match workflow.payload["wait"]:
        case "signal":
            wait_for_signal(workflow, "payment", "paid", timeout=limit)
        case "linked":
            wait_for_signal(workflow, "account", "account.created", timeout=limit)
        case "person":
            require_approval(workflow, "review", question="May it go on?", timeout=limit)
        case "time":
            wait_for_time(workflow, "pause", limit)
        case "children":
            child = {"log": workflow.payload["log"], "wait": "signal"}
            wait_for_children(workflow, "children", [Child("waits", child) for _ in range(2)], timeout=limit)


WAITS = WorkflowDefinition(name="waits", context_class=Context, steps=[begin, wait, end])

TOLD = WorkflowDefinition(
    name="told", steps=[open_order, pay_order], context_class=Context, publishes=["completed", "failed"]
)

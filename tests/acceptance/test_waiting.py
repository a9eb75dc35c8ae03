"""What waits outlives everything: workers, PostgreSQL, and clocks that are wrong."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection

from tests.acceptance.conftest import Start
from tests.acceptance.outside import now, submit
from tests.processes import until
from workflows import operations
from workflows.models import ManualTask, Wait, Workflow
from workflows.signals import store

pytestmark = pytest.mark.django_db(transaction=True)

KINDS = ("signal", "linked", "person", "time", "children")


def all_wait(workflows: Iterable[Workflow]) -> bool:
    return all(now(workflow).waiting_for for workflow in workflows)


def are_complete(workflows: Iterable[Workflow]) -> bool:
    return all(now(workflow).status == "COMPLETE" for workflow in workflows)


def tell(workflow: Workflow) -> None:
    """Let happen what it waits for."""
    match workflow.payload["wait"]:
        case "signal":
            store.send(source="shop", dedupe_key=str(uuid4()), name="paid", workflow_id=workflow.pk, payload={})
        case "linked":
            linking_id = workflow.linking_id
            store.send(
                source="shop", dedupe_key=str(uuid4()), name="account.created", linking_id=linking_id, payload={}
            )
        case "person":
            boss, _ = User.objects.get_or_create(username="boss", is_superuser=True)
            operations.approve(ManualTask.objects.get(workflow=workflow).pk, user=boss)
        case "time":
            with connection.cursor() as cursor:
                over = "clock_timestamp() - interval '1 second'"
                cursor.execute(f"UPDATE workflows_wait SET deadline = {over} WHERE workflow_id = %s", [workflow.pk])
                row = "UPDATE workflows_workflow SET invisible_until = created_at WHERE id = %s"
                cursor.execute(row, [workflow.pk])
        case "children":
            for child in workflow.children.all():
                tell(child)


def wrong_clock(offset: str) -> dict[str, str]:
    """The environment of a process whose clock is wrong by that many seconds; what it measures with is right."""
    library = subprocess.run(
        ["faketime", "-f", "+0s", "printenv", "LD_PRELOAD"], capture_output=True, text=True, check=True
    )
    return {"LD_PRELOAD": library.stdout.strip(), "FAKETIME": f"{offset}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


@pytest.mark.skipif(not shutil.which("faketime"), reason="needs faketime (apt-get install faketime)")
@pytest.mark.parametrize("offset", ["+600", "-600"])
def test_a_clock_of_the_worker_that_is_ten_minutes_wrong_changes_nothing(
    offset: str, runworker: Start, effects: Path
) -> None:
    worker = runworker("WAITS", **wrong_clock(offset))
    waiting = [submit("waits", effects, {"wait": kind}, linking_id=str(uuid4())) for kind in KINDS if kind != "time"]
    short = submit("waits", effects, {"wait": "time", "seconds": 2})
    late = submit("waits", effects, {"wait": "signal", "seconds": 2})
    until(lambda: all_wait(waiting), what=lambda: worker.output)
    until(lambda: now(short).status == "COMPLETE" and now(late).status == "FAILED", what=lambda: worker.output)
    for workflow in (short, late):
        wait = Wait.objects.get(workflow=workflow)
        assert wait.deadline - wait.created_at == pytest.approx(timedelta(seconds=2), abs=timedelta(seconds=0.5))
        assert wait.resolved_at is not None
        assert timedelta(0) <= wait.resolved_at - wait.deadline < timedelta(seconds=20)
    assert now(late).last_error_code == "wait_expired"
    assert all_wait(waiting), "none of them has expired"
    for workflow in waiting:
        tell(workflow)
    until(lambda: are_complete(waiting), what=lambda: worker.output)
    # The process did have another time: what it logs says so.
    logged_year_to_minute = worker.output[:16]
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')")
        assert cursor.fetchone() != (logged_year_to_minute,)

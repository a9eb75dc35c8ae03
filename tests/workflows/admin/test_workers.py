"""The list of workers: who works, on what, on which release, and who has fallen silent?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login

WORKERS = "/admin/workflows/workerprocess/"


def html(client: Client, url: str = WORKERS) -> str:
    response = client.get(url)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def test_it_shows_who_works_on_what_and_on_which_release(as_: Login) -> None:
    workflow = rows.running()
    rows.worker(workflow=workflow, attempt=1, step="charge")
    page = html(as_("support"))
    for shown in [
        "host-a:41",
        "badge-running",
        "Working",
        f'<a href="/admin/workflows/workflow/{workflow.pk}/change/">workflow {workflow.pk}</a>',
        ">Charge<",
        "r7",
        ">default<",
    ]:
        assert shown in page


def test_what_it_runs_is_the_attempt_that_is_open_and_not_what_the_last_heartbeat_said(as_: Login) -> None:
    before = rows.complete()
    workflow = rows.running()
    rows.worker(workflow=before, attempt=1, step="charge")
    page = html(as_("support"))
    assert f"workflow {workflow.pk}<" in page
    assert f"workflow {before.pk}<" not in page
    assert "Charge" not in page, "that was a step of the one before"


def test_its_state_is_a_word(as_: Login) -> None:
    engineer, now = as_("engineer"), timezone.now()
    states: dict[str, dict[str, Any]] = {
        "Idle": {},
        "Silent": {"last_seen": now - timedelta(minutes=5)},
        "Stopped": {"stopped_at": now},
        "Died": {"stopped_at": now, "ended_how": "SIGSEGV"},
    }
    for pid, (label, fields) in enumerate(states.items()):
        row = rows.worker(pid, **fields)
        page = html(engineer, f"{WORKERS}{row.pk}/change/")
        assert f">{label}</span>" in page
        assert ("by SIGSEGV" in page) == (label == "Died")
    listed = html(engineer)
    assert all(f">{label}</span>" in listed for label in states)

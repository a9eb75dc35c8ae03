"""Each page takes as many statements for many rows as for few."""

from __future__ import annotations

import cProfile
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.models.sql.compiler import SQLCompiler
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import numberformat, timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, ours
from tests.workflows.features.brake.causes import open_cause
from tests.workflows.features.outages.services import open_circuit
from workflows.console.base import ConsoleAdmin
from workflows.console.verbs import read_once
from workflows.health import bounded
from workflows.models import CircuitEvent, Workflow
from workflows.models.xids import CurrentTransactionId

PAGES = (
    *(
        "",
        "needs-a-person/",
        "failures/",
        "incident/?workflow_type=parcel&step=charge&code=card_declined",
        "audit/",
        "workflows/workflow/",
        "workflows/workflow/?state=failed",
    ),
    *("workflows/manualtask/", "workflows/manualtask/?state=all", "workflows/service/", "workflows/workerprocess/"),
)

# Statements of the ORM; how often it builds one, or a part of one; numbers that Django writes by the rules of a place.
# A page that takes fewer lowers its numbers.
MOST = {"/admin/": 12, "/admin/needs-a-person/": 12, "/admin/workflows/workflow/": 7, "/admin/failures/": 3}
MOST_CALLS = {"/admin/": [31, 16], "/admin/needs-a-person/": [31, 27]}

FINISHED: dict[str, Any] = {"detail": {"error_code": "card_declined"}, "finished_xid": CurrentTransactionId()}


def calls(client: Client, page: str) -> list[int]:
    with cProfile.Profile() as profile:
        assert client.get(page).status_code == 200
    found = {each.code: each.callcount for each in profile.getstats()}
    return [found.get(function.__code__, 0) for function in (SQLCompiler.as_sql, numberformat.format)]


def one_of_each(user: User, root: Workflow, number: int) -> None:
    """Of each kind a row, each in a group of its own, and one more beside the root."""
    for make in (rows.workflow, rows.running, rows.retrying, rows.compensating, rows.cancelled, rows.given_up):
        make(queue=f"q{number}") if make is rows.workflow else make()
    rows.failed(current_step=f"step_{number}", acknowledged_failure=None)
    rows.event(rows.failed(failed_release=f"r{number}"), "failed", at=timezone.now(), step="charge", **FINISHED)
    rows.open_task(rows.waiting(task=False), due_at=timezone.now())
    rows.open_task(rows.waiting(task=False), assignee=user, team="operations", task_type="effect_in_doubt")
    rows.attempt(rows.workflow(), worker=f"host-a:{number}", closed_at=None)
    rows.worker(number, queue=f"q{number}")
    open_circuit(f"s{number}"), open_cause(code=f"Error{number}")
    rows.parked(parked_on=f"s{number}")
    CircuitEvent.objects.create(service=f"s{number}", kind="held", actor="ada")
    rows.event(root, "retried", actor="ada")
    signal = root.signals.create(source="x", dedupe_key=f"{number}", name="sent", closed_at=timezone.now())
    root.waits.create(name=f"{number}", kind="signal", deadline=timezone.now(), signal=signal)
    rows.workflow(parent=root, parent_wait="all", child_key=f"{number}")


def test_a_page_takes_as_many_statements_for_many_rows_as_for_few(
    as_: Login, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConsoleAdmin, "list_per_page", 10)  # or the short lists are not counted
    settings.METRICS_TOKEN = "token"
    boss, scrape = as_("superuser"), Client(headers={"Authorization": "Bearer token"})
    user, root = User.objects.get(), rows.workflow(linking_id="link-4711")

    def taken() -> dict[str, int]:
        found = {}
        for page in (*(f"/admin/{page}" for page in PAGES), f"/admin/workflows/workflow/{root.pk}/change/", "/metrics"):
            with CaptureQueriesContext(connection) as captured:
                assert (scrape if page == "/metrics" else boss).get(page).status_code == 200
            found[page] = ours(captured)
        return found

    ContentType.objects.get_for_models(*apps.get_models())  # Django keeps them from then on
    for number in range(3):
        one_of_each(user, root, number)
    few = taken()
    assert {page: few[page] for page in MOST if few[page] > MOST[page]} == {}
    called = {page: calls(boss, page) for page in MOST_CALLS}
    assert called == {page: [*map(min, called[page], most)] for page, most in MOST_CALLS.items()}
    for number in range(3, 5):
        one_of_each(user, root, number)
    assert {page for page, number in taken().items() if number > few[page]} == set()


def test_a_page_builds_no_more_sql_when_more_needs_a_person_than_is_counted(
    as_: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    boss = as_("superuser")
    for number in range(2):
        one_of_each(User.objects.get(), rows.workflow(), number)

    def built() -> dict[str, int]:
        return {
            page: [calls(boss, page) for _ in range(2)][1][0] for page in MOST_CALLS
        }  # the first builds it for good

    few = built()
    monkeypatch.setattr(bounded, "PEOPLE_LIMIT", 1)
    assert built() == few


def test_what_is_read_once_for_a_page_is_kept_on_its_row_even_if_it_is_nothing() -> None:
    row, found = Workflow(), iter([None, "read again"])
    assert [read_once(row, "asked", lambda: next(found)) for _ in range(3)] == [None] * 3

"""The list of workflows as a file."""

from __future__ import annotations

import csv
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels
from tests.workflows.admin.tasks import words
from tests.workflows.admin.test_lists import LIST, listed
from tests.workflows.admin.test_money import PAID, call
from tests.workflows.admin.test_patient import PAYLOAD
from workflows.console import paging
from workflows.features.lists import export
from workflows.models import Access, Effect

__all__ = ["as_", "parcels"]

EXPORT = "/admin/export-workflows/"


def taken(client: Client, query: str = "") -> list[list[str]]:
    """The rows of the file, without the first, which names the columns."""
    answer = client.post(EXPORT + query)
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    text = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    columns, *found = csv.reader(text.splitlines())
    assert tuple(columns) == export.COLUMNS
    return found


def test_its_button_stands_above_the_list_and_is_of_its_form(as_: Login) -> None:
    assert "There is nothing to export." in as_("support lead").get(LIST).content.decode()
    rows.failed()
    above, _, below = as_("support lead").get(LIST).content.decode().partition('id="result_list"')
    assert '<button class="button" form="changelist-form" formaction="/admin/export-workflows/?">Export as CSV' in above
    assert 'id="changelist-form"' in above
    assert "Export as CSV" not in below


def test_it_has_what_the_list_has_masked_and_in_its_order(as_: Login) -> None:
    lead, at = as_("support lead"), timezone.now().replace(microsecond=0)
    row = rows.failed(workflow_type="onboarding", payload=PAYLOAD, created_at=at, completed_at=at, retry_count=1)
    Effect.objects.create(workflow=row, attempt=1, idempotency_key="1", **call("done", PAID))
    rows.waiting()
    (found,) = taken(lead, "?state=failed&order=earliest")
    when = f"{at:%Y-%m-%d %H:%M:%S}"
    about = "m•••@example.com"
    assert found == [
        *(str(row.pk), "Onboarding", about, "Failed", "Charge", "1 (failed once)", "", "", "Card declined"),
        *("$145.00 charged", when, when),
    ]


def test_it_has_every_page_of_lists_with_several_arms_and_of_failures(
    as_: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "AT_ONCE", 2)
    lead, now = as_("support lead"), timezone.now()
    for number in range(5):
        rows.workflow()
        rows.workflow(begun=True, retry_count=1, invisible_until=now - timedelta(hours=1))
        rows.failed(completed_at=now - timedelta(seconds=number % 3), acknowledged_failure=None)
    for query in ("", "?state=queued", "?state=queued&order=oldest", "?preset=unacknowledged&order=earliest"):
        assert [int(line[0]) for line in taken(lead, query)] == listed(lead, query)


def test_it_is_on_record_before_the_first_byte(as_: Login) -> None:
    rows.failed()
    answer = as_("auditor").post(f"{EXPORT}?state=failed")
    made = Access.objects.get()  # nothing of the answer is read yet
    assert (made.actor, made.kind, made.workflow_id) == ("some-auditor", "listed", None)
    assert made.detail == {"chosen": "state: Failed; newest first; 1 of them"}
    assert answer.status_code == 200
    told = words(as_("auditor").get("/admin/audit/").content.decode())
    assert "Exported a list of workflows some-auditor" in told
    assert "state: Failed; newest first; 1 of them" in told


def test_it_is_for_those_who_may_and_nobody_else_is_offered_it(as_: Login) -> None:
    rows.workflow()
    assert as_("support").post(EXPORT).status_code == 403
    assert not Access.objects.exists()
    assert EXPORT not in as_("support").get(LIST).content.decode()
    for group in ("support lead", "engineer", "auditor"):
        assert f'action="{EXPORT}?state=queued"' in as_(group).get(f"{LIST}?state=queued").content.decode()
        assert len(taken(as_(group))) == 1
    assert as_("auditor").get(EXPORT).status_code == 405
    assert as_("auditor").post(f"{EXPORT}?payload__x=1").status_code == 400


def test_a_file_that_is_cut_says_so_and_so_do_the_page_and_the_audit(
    as_: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "COUNT_LIMIT", 3)
    monkeypatch.setattr(export, "MOST", 3)
    lead = as_("support lead")
    for _ in range(3):
        rows.workflow()
    assert "All 3 of them, masked as here" in words(lead.get(LIST).content.decode())
    assert len(taken(lead)) == 3
    rows.workflow()
    monkeypatch.setattr("workflows.console.base.ConsoleAdmin.list_per_page", 2)
    assert "The first 3 of more than 3, and the file says at its end that it is cut" in words(
        lead.get(LIST).content.decode()
    )
    *found, last = taken(lead)
    assert (len(found), last[1]) == (3, "Not more than 3 workflows: filter the list further for the rest")
    assert Access.objects.latest("pk").detail["chosen"] == "all workflows; newest first; the first 3 of more"


def test_no_spreadsheet_runs_what_is_in_it(as_: Login) -> None:
    rows.waiting(waiting_for="=HYPERLINK(1)", task=False)
    ((*_, waits_for, _, _, _, _, _),) = taken(as_("support lead"))
    assert waits_for == "'=HYPERLINK(1)"

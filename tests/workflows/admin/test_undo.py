"""Undo on the pages: the message after a decision names task and patient, and its button takes the decision back."""

from __future__ import annotations

import re

from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import IN_DOUBT, page, task, url, words
from workflows.console.manual_task import SETTLES
from workflows.models import Chore, ManualTask, Signal
from workflows.operations import undoing


def decided(client: Client, row: ManualTask, **data: str) -> str:
    """The page after a decision."""
    Chore.objects.get_or_create(pk=undoing.CHORE)
    return client.post(url(row, "decide"), {"reason": "Too heavy.", **data}, follow=True).content.decode()


def test_the_message_names_the_patient_masked_and_its_button_undoes_it(as_: Login) -> None:
    client = as_("approver")
    about = rows.waiting(task=False, workflow_type="onboarding", payload={"patient": {"email": "ada@example.com"}})
    row = rows.open_task(about, undoable=True)
    for decision, told in (("approve", "Approved"), ("reject", "Rejected")):
        html = decided(client, row, decision=decision)
        message = html.split('class="messagelist"')[1].split("</ul>")[0]
        assert words(f"<ul{message}") == f"{told}: task {row.pk}, a•••@example.com. Undo"
        assert f'action="{url(row, "undo")}"' in message
        assert url(row, "undo") in page(client, row), "it is on the task's page, too"
        assert url(row, "undo") not in as_("superuser").get(url(row)).content.decode()
        said = client.post(url(row, "undo"), follow=True).content.decode()
        assert f"Undone: task {row.pk} is open again." in said
        assert "Your decision" in said
    assert not Signal.objects.exists()
    assert "Decision taken back" in client.get(f"/admin/workflows/workflow/{about.pk}/change/").content.decode()


def test_an_answer_to_the_engine_has_no_undo(as_: Login) -> None:
    client = as_("superuser")
    row = task(**IN_DOUBT)
    html = decided(client, row, decision="reject")
    assert url(row, "undo") not in html
    assert "You can undo it" not in page(client, row)
    assert Signal.objects.get().payload["approved"] is False


def test_an_undo_that_comes_too_late_says_so(as_: Login) -> None:
    client = as_("approver")
    row = task(undoable=True)
    assert "You can undo it for 10 seconds" in page(client, row)
    decided(client, row, decision="approve")
    ManualTask.objects.update(decided_at="2020-01-01T00:00:00Z")
    assert "the decision stands" in client.post(url(row, "undo"), follow=True).content.decode()
    assert ManualTask.objects.get().state == "approved"


def test_the_button_says_how_long_it_stays_and_the_page_looks_again_until_the_workflow_goes_on(as_: Login) -> None:
    client = as_("approver")
    row = task(undoable=True)
    assert 'id="live"' not in page(client, row), "somebody is deciding"
    of_message, of_page = map(int, re.findall(r'data-undo-for="(\d+)"', decided(client, row, decision="approve")))
    assert 0 < of_page <= of_message == undoing.UNDO_FOR * 1000
    assert 'id="live" data-at-rest="no"' in page(client, row)
    ManualTask.objects.update(decided_at=timezone.now() - SETTLES)
    assert 'id="live" data-at-rest="yes"' in page(client, row)

"""Notes on a workflow: who may write one, where it is shown, and where never."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction
from django.utils import timezone

from tests.dumps import dump
from tests.engine import another_connection, elsewhere, until_blocked, with_its_connections
from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_
from tests.workflows.operations.people import held
from workflows.errors import NotAllowed
from workflows.features.cases import operations as cases
from workflows.features.retention import content
from workflows.models import CaseNote, Event, Workflow

__all__ = ["as_"]

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "Her <insurer> pays:\ncall back on Monday."


@pytest.fixture
def boss() -> User:
    return User.objects.create_superuser("boss")


def test_a_note_stands_on_the_page_newest_first_and_nowhere_else(as_: Login) -> None:
    row, approver = rows.failed(), as_("approver")
    page = f"/admin/workflows/workflow/{row.pk}/"
    for text in (TEXT, "It is settled."):
        form = dict(re.findall(r'name="(row|form)" value="([^"]*)"', approver.get(f"{page}note/").content.decode()))
        for _ in range(2):  # a double click
            html = approver.post(f"{page}note/", {**form, "reason": text}, follow=True).content.decode()
    assert re.search(r"It is settled\..*Her &lt;insurer&gt; pays:\s+call back", html, re.DOTALL)
    assert "<strong>Note added</strong> by <strong>some-approver</strong>" in html
    told = ("noted", "some-approver", {"reason": ""})
    assert list(Event.objects.values_list("kind", "actor", "detail")) == [told, told]
    assert dump().count("insurer") == 1
    auditor = as_("auditor")
    assert auditor.post(f"{page}note/", {"reason": TEXT}).status_code == 403
    audit = auditor.get("/admin/audit/").content.decode()
    assert ("Note added" in audit, "insurer" in audit) == (True, False)


def test_a_changed_text_from_the_same_form_is_another_note(boss: User) -> None:
    row, form = rows.complete(), uuid4()
    for text in (TEXT, f" {TEXT} ", "It is another matter."):
        cases.add_note(row.pk, user=boss, reason=text, form=form)
    assert list(CaseNote.objects.order_by("id").values_list("text", flat=True)) == [TEXT, "It is another matter."]


@pytest.mark.parametrize("make", [rows.failed, rows.workflow])
def test_of_two_clicks_at_once_both_succeed_and_one_note_is_stored(boss: User, make: Callable[[], Workflow]) -> None:
    row, form = make(), uuid4()
    with ThreadPoolExecutor(2) as threads:
        sent = [
            threads.submit(elsewhere, lambda: cases.add_note(row.pk, user=boss, reason=TEXT, form=form))
            for _ in range(2)
        ]
        assert [each.result() for each in sent] == [None, None]
    assert (CaseNote.objects.count(), Event.objects.count()) == (1, 1)


def test_it_does_not_wait_for_a_worker(boss: User) -> None:
    row = rows.running()
    with held(row):
        cases.add_note(row.pk, user=boss, reason=TEXT)
    assert CaseNote.objects.get().text == TEXT


def test_what_is_no_note_is_refused(boss: User) -> None:
    row = rows.failed()
    for text, why in [(" \u200b", "no text"), ("x" * 2001, "at most 2,000 characters; this one has 2,001")]:
        with pytest.raises(NotAllowed, match=why):
            cases.add_note(row.pk, user=boss, reason=text)
    with pytest.raises(NotAllowed, match="There is no workflow 0"):
        cases.add_note(0, user=boss, reason=TEXT)
    cases.add_note(row.pk, user=boss, reason="x" * 2000)
    assert Event.objects.count() == 1


def test_a_command_adds_one_and_shows_none(boss: User) -> None:
    row, out = rows.failed(), StringIO()
    call_command("workflow", "note", str(row.pk), "--reason", TEXT, "--actor", "boss", stdout=out)
    call_command("workflow", "show", str(row.pk), "--actor", "boss", stdout=out)
    assert CaseNote.objects.get().text == TEXT
    assert "Note added" in out.getvalue()
    assert "insurer" not in out.getvalue()


def test_once_what_was_sent_is_deleted_the_text_is_too_and_nobody_adds_one(boss: User, as_: Login) -> None:
    row = rows.failed(completed_at=timezone.now() - timedelta(days=8))
    cases.add_note(row.pk, user=boss, reason=TEXT)
    with transaction.atomic():
        content.empty([row.pk])
    with pytest.raises(NotAllowed, match="was deleted at"):
        cases.add_note(row.pk, user=boss, reason=TEXT)
    html = as_("support").get(f"/admin/workflows/workflow/{row.pk}/change/").content.decode()
    assert re.search(r"<strong>boss</strong>\s*<div class=\"told\">\(deleted\)", html)


def test_a_note_waits_for_what_empties_the_workflow_and_is_then_refused(boss: User) -> None:
    row = rows.failed()
    with ThreadPoolExecutor(1) as thread, another_connection() as other, other.transaction():
        other.execute("UPDATE workflows_workflow SET emptied_at = now() WHERE id = %s", [row.pk])
        adding = thread.submit(with_its_connections, lambda: cases.add_note(row.pk, user=boss, reason=TEXT))
        until_blocked()
    with pytest.raises(NotAllowed, match="was deleted at"):
        adding.result()
    assert not CaseNote.objects.exists()

"""The pages of what was made by hand: both people's, and where it is not offered."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels
from workflows.models import Effect, Workflow
from workflows.operations import ended_at
from workflows.telling.patient import PAID_BY_HAND, message_of

__all__ = ["as_", "parcels"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def boss() -> User:
    return User.objects.create_superuser("boss")


def page(row: Workflow, verb: str = "change") -> str:
    return f"/admin/workflows/workflow/{row.pk}/{verb}/"


def test_a_lead_says_it_with_what_the_step_returns(as_: Login) -> None:
    row, lead = Workflow.objects.get(pk=rows.not_made().pk), as_("support lead")
    assert page(row, "by_hand") in lead.get(page(row)).content.decode()
    html = lead.get(page(row, "by_hand")).content.decode()
    assert re.search(r"Reference.*Enrol?ment.*Reason", html, re.DOTALL)
    assert 'name="answer-enrollment_id"' in html
    assert "Nothing is called: “Enrol in the program” goes on record as made by hand" in html
    assert not re.search(r"Made where it applies: [^<]*Enrol in the program", html)
    form = {"row": re.findall(r'name="row" value="([^"]*)"', html)[0], "seen": ended_at(row), "reason": "By phone."}
    html = lead.post(page(row, "by_hand"), {**form, "reference": "en-77"}).content.decode()
    assert ("Look at the fields above." in html, "en-77" in html, Effect.objects.count()) == (True, True, 1)
    said = {"reference": "en-77", "answer-enrollment_id": "en-77"}
    html = lead.post(page(row, "by_hand"), {**form, **said}, follow=True).content.decode()
    assert "It is on record, and the workflow starts again." in html
    assert re.search(r"Done by hand</strong>\s*by <strong>some-support lead.*en-77", html, re.DOTALL)
    assert "Done by hand, by some-support lead" in html
    assert Workflow.objects.get(pk=row.pk).status == "PENDING"


def test_of_a_charge_it_says_what_each_number_is_and_that_no_sum_is_asked(as_: Login) -> None:
    answer = as_("superuser").get(page(rows.not_made("execute_checkout"), "by_hand"))
    fields = {field.name: field.help_text for field in answer.context["form"].visible_fields()}
    assert "no step reads it" in fields["reference"]
    assert fields["charge_id"].startswith("The charge's own number, with which the steps go on")
    assert "The sum is not asked for" in answer.content.decode()


def test_it_is_offered_only_where_it_holds_and_refused_with_a_sentence(as_: Login) -> None:
    engineer = as_("engineer")
    for row, why in (
        (rows.failed(), "is on record|makes no call|was not tried|does not declare"),
        (rows.complete(), "has failed by itself"),
        (rows.not_made(cancelled_at=timezone.now()), "has failed by itself"),
        (rows.not_made(payload={}, emptied_at=timezone.now()), "was deleted"),
    ):
        assert page(row, "by_hand") not in engineer.get(page(row)).content.decode()
        assert re.search(why, engineer.get(page(row, "by_hand"), follow=True).content.decode())
    assert page(rows.not_made(), "by_hand") not in as_("support").get(page(row)).content.decode()


def test_a_second_person_sees_what_was_said(as_: Login, boss: User) -> None:
    asked = rows.by_hand(boss)
    row = Workflow.objects.get(pk=asked.workflow_id)
    lead = as_("support lead")
    User.objects.update(date_joined=timezone.now() - timedelta(days=2))
    html = lead.get(page(row)).content.decode()
    assert "boss has said that “Charge the card” was made by hand: Paid at the desk." in html
    assert page(row, "confirm_by_hand") in html
    assert page(row, "by_hand") not in html
    assert "confirm that, or do not confirm it" in html  # in place of Retry
    assert re.search(r"boss says that [^<]* was charged by hand; nobody has confirmed it yet.", html)
    assert ("Nothing has been charged" in html, "Please do not pay again" in html) == (False, True)
    task = rows.open_task(row, state="approved", decided_by=boss, decided_at=timezone.now())
    told_there = lead.get(f"/admin/workflows/manualtask/{task.pk}/change/").context["money"]
    assert told_there.endswith("was charged by hand; nobody has confirmed it yet.")
    told = Workflow.objects.with_state().get(pk=row.pk)
    assert message_of(told) == PAID_BY_HAND, "the sender reads the same"
    assert "boss says that its call was made by hand." in lead.get(page(row, "acknowledge")).content.decode()
    Workflow.objects.filter(pk=row.pk).update(workflow_type="of-another-release")
    told = Workflow.objects.with_state().get(pk=row.pk)
    html = lead.get(page(row)).content.decode()
    assert (message_of(told), "Please do not pay again" in html) == (PAID_BY_HAND, True), "any call may be a charge"
    assert "boss says that a call was made by hand, which may have been a charge" in html
    Workflow.objects.filter(pk=row.pk).update(workflow_type=row.workflow_type)
    html = lead.get(page(row, "confirm_by_hand")).content.decode()
    assert "boss has said that “Charge the card” was made by hand: " in html
    assert "pos-77" in html
    assert "Done by hand, to confirm: was the call made?" in lead.get("/admin/needs-a-person/").content.decode()


def test_it_is_retracted_on_the_page(as_: Login, boss: User) -> None:
    row, lead = rows.made_by_hand(boss), as_("support lead")
    assert page(row, "not_by_hand") in lead.get(page(row)).content.decode()
    form = {"seen": [Effect.objects.get().pk], "reason": "Another patient."}
    html = lead.post(page(row, "not_by_hand"), form, follow=True).content.decode()
    assert "It is retracted; the workflow has failed again." in html


def test_the_question_of_its_reversal_only_looks_again(as_: Login, boss: User) -> None:
    row = rows.made_by_hand(boss, compensating=True)
    Effect.objects.update(generation=1)
    row.refresh_from_db()
    question = {"task_type": "undo_in_doubt", "team": "operations", "expires_at": row.invisible_until}
    task = rows.open_task(row, about="enroll_in_program", **question)
    html = as_("support lead").get(f"/admin/workflows/manualtask/{task.pk}/change/").content.decode()
    assert ("Look again" in html, "Try again" in html, "reversed there only if it is found" in html) == (
        True,
        False,
        True,
    )

"""Is it to be reversed? What the pages say while a person decides, and after."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import decide, offered, page, url, words
from tests.workflows.admin.test_money_and_rights import call, onboarding
from workflows.before_undo import ask
from workflows.definition import definitions
from workflows.engine import undo_question
from workflows.models import Effect, ManualTask, Signal, Workflow
from workflows.telling import patient

HOUR = timedelta(hours=1)


def undecided(code: str = "program_full", *, due: timedelta = HOUR) -> ManualTask:
    """An onboarding that has failed after its charge: a member of the team is asked before that is refunded."""
    Group.objects.get_or_create(name="billing")[0].user_set.set(Group.objects.get(name="approver").user_set.all())
    row = onboarding(
        compensating=True,
        begun=True,
        waiting_for=undo_question.ASKED,
        invisible_until=timezone.now() + 24 * HOUR,
        current_step="enroll_in_program",
        last_error_code=code,
    )
    call(row, charge_id="ch_1")
    facts = [["Why it failed", "The program is full."], ["To be reversed", "“Charge the card”"]]
    return rows.open_task(
        row, task_type="before_undo", team="billing", facts=facts, due_at=timezone.now() + due, question=row.waiting_for
    )


def workflow_page(client: Client, row: ManualTask) -> str:
    return words(client.get(f"/admin/workflows/workflow/{row.workflow_id}/change/").content.decode())


def test_the_page_shows_what_is_needed_to_decide(as_: Login) -> None:
    client = as_("approver")
    html = page(client, undecided())
    assert offered(html) == ["Assign to me", "Reverse it", "Leave it as it is"]
    said = words(html)
    for shown in ("Money $145.00 charged at", "Why it failed The program is full.", "To be reversed “Charge the card”"):
        assert shown in said
    assert "If nobody has decided by then, it is reversed." in said
    assert "Required if it is left as it is." in said


def test_it_is_left_with_a_reason_only(as_: Login) -> None:
    client, row = as_("approver"), undecided()
    assert "Say why." in decide(client, row, decision="reject")
    assert not Signal.objects.exists()
    assert "Your answer is kept: leave it as it is." in decide(client, row, decision="reject", reason="On Monday.")
    assert "Left as it is Answered by some-approver" in words(page(client, row))


@pytest.mark.parametrize(("button", "retry", "said"), [("approve", False, "reverse it"), ("retry", True, "retry it")])
def test_a_retry_is_offered_where_it_may_help(as_: Login, button: str, *, retry: bool, said: str) -> None:
    client, row = as_("approver"), undecided("overdue")
    html = page(client, row)
    assert offered(html) == ["Assign to me", "Reverse it", "Retry it", "Leave it as it is"]
    assert "no call on record is made again" in html
    assert f"Your answer is kept: {said}." in decide(client, row, decision=button)
    assert Signal.objects.get().payload["answer"] == {"retry": retry}
    assert f"To be {'retried, and not reversed' if retry else 'reversed'} by some-approver" in workflow_page(
        client, row
    )


def test_a_decision_can_be_given_again(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    client, row = as_("approver"), undecided()
    monkeypatch.setattr(definitions()["onboarding"], "before_undo", ask("billing"))
    decide(client, row, decision="reject", reason="On Monday.")
    asks = words(client.get(url(row, "take_back")).content.decode())
    assert "The workflow asks again at once, by another task. If nobody decides in time, it is then reversed." in asks
    row.wait.outcome = "rejected"
    row.wait.save()
    Workflow.objects.update(status="FAILED", compensating=False, completed_at=timezone.now())
    assert "is taken up again: it asks again at once" in words(client.get(url(row, "take_back")).content.decode())


def test_the_history_says_that_a_person_is_asked_and_that_nobody_answered(as_: Login) -> None:
    row = undecided()
    rows.event(row.workflow, "compensating", detail={"asks": True})
    rows.event(row.workflow, "expired", detail={"type": "before_undo", "counts_as": "expired"})
    said = workflow_page(as_("approver"), row)
    assert "Nobody has decided in time, so it is reversed." in said
    assert "A person is asked before anything is reversed." in said


def test_a_retry_that_does_not_help_is_refused(as_: Login) -> None:
    client, row = as_("approver"), undecided()
    assert "A retry does not mend why it failed" in decide(client, row, decision="retry")
    assert ManualTask.objects.get().state == "open"


def test_a_retry_that_charges_again_is_for_a_user_who_may_charge_again(as_: Login) -> None:
    client, row = as_("approver"), undecided("overdue")
    Effect.objects.update(state="undone")
    assert "Retry it" not in offered(page(client, row))
    assert "a retry charges again: ask a support lead" in decide(client, row, decision="retry")
    assert "What was refunded is charged again: $145.00." in words(page(as_("superuser"), row))


def test_until_then_the_charge_stands_and_everybody_is_told_so(as_: Login) -> None:
    client, row = as_("approver"), undecided()
    said = workflow_page(client, row)
    assert "What it did stands until a person has decided whether it is reversed." in said
    assert patient.DECIDING in said
    assert "is being reversed" not in said
    call(row.workflow, state="unknown", generation=2)
    assert patient.UNKNOWN in workflow_page(client, row), "no refund is promised"
    Effect.objects.filter(generation=2).delete()
    ManualTask.objects.update(state="closed")
    row.wait.outcome = "approved"
    row.wait.save()
    said = workflow_page(client, row)
    assert "What it did is being reversed where it can be." in said
    assert patient.BEING_REFUNDED in said


def test_it_stands_first_among_what_needs_a_person_and_is_overdue_after_an_hour(as_: Login) -> None:
    client = as_("superuser")
    rows.open_task(rows.waiting(task=False), due_at=timezone.now() - HOUR)
    row = undecided(due=-HOUR)
    response = client.get(reverse("admin:needs_a_person"))
    first = response.context["lines"][0]  # type: ignore[index]
    assert (first.task, first.is_overdue, first.asks) == (row.pk, True, "Reversal to decide")

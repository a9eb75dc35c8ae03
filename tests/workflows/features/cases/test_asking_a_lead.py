"""A lead is asked to see to a case: listed until one has, or until somebody acts on it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.test import Client
from django.utils import timezone

from tests.engine import do_chore, elsewhere
from tests.postgres import without_triggers
from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels
from tests.workflows.features.operator_api.people import Program, person
from workflows import operations
from workflows.errors import NotAllowed
from workflows.features.cases import operations as cases
from workflows.features.operator_api import proposals
from workflows.models import CaseNote, Chore, Event, ManualTask, Proposal, Workflow
from workflows.operations import undoing

__all__ = ["as_", "parcels"]

pytestmark = pytest.mark.django_db(transaction=True)

WHY = "Her mother has paid, too."


@pytest.fixture
def boss() -> User:
    return User.objects.create_superuser("boss")


def listed(client: Client) -> list[tuple[int, str]]:
    lines = client.get("/admin/needs-a-person/?kind=lead").context["lines"]
    return [(line.workflow, line.asks) for line in lines]


@pytest.mark.parametrize("make", [rows.failed, rows.parked, rows.compensating, rows.cancelled])
def test_leads_find_the_case_and_say_that_they_have_seen_to_it(as_: Login, make: Callable[[], Workflow]) -> None:
    row, support, lead = make(), as_("support"), as_("support lead")
    page = f"/admin/workflows/workflow/{row.pk}/"
    assert "A lead is asked." in support.post(f"{page}ask_lead/", {"reason": WHY}, follow=True).content.decode()
    assert listed(lead) == [(row.pk, "some-support asks a lead to see to it")]
    html = lead.get(f"{page}change/").content.decode()
    assert (WHY in html, "some-support asked a lead at" in html) == (True, True)
    seen = re.findall(r'name="seen" value="(\d+)"', lead.get(f"{page}lead_has_seen/").content.decode())
    assert support.post(f"{page}lead_has_seen/", {"seen": seen}).status_code == 403
    for answer in ("It is seen to.", "No lead is asked any more"):
        assert answer in lead.post(f"{page}lead_has_seen/", {"seen": seen}, follow=True).content.decode()
    assert listed(lead) == []
    told = Event.objects.filter(workflow=row).exclude(actor="").order_by("id").values_list("kind", "actor", "detail")
    assert list(told) == [
        ("lead_asked", "some-support", {"reason": ""}),
        ("lead_has_seen", "some-support lead", {"reason": ""}),
    ]


def test_it_is_over_once_a_person_acts_or_the_workflow_completes(boss: User) -> None:
    retried, completed, failed, noted = (rows.failed() for _ in range(4))
    rows.event(failed, "retried", actor="ada")  # before
    for row in (retried, completed, failed, noted):
        cases.ask_lead(row.pk, user=boss, reason=WHY)
    operations.retry(retried.pk, user=boss, reason="Once more.")
    Workflow.objects.filter(pk=completed.pk).update(status="COMPLETE")
    rows.event(failed, "failed")
    cases.add_note(noted.pk, user=boss, reason="She called again.")
    assert elsewhere(lambda: do_chore("close what leads were asked").changed) == 2
    assert set(cases.asking().values_list("workflow", flat=True)) == {failed.pk, noted.pk}


@pytest.mark.parametrize("becomes", ["refused", "withdrawn", "lapsed"])
def test_what_a_program_proposes_and_nobody_approves_is_no_act(boss: User, becomes: str) -> None:
    program, row = Program(person("anna", "support lead")), rows.failed()
    cases.ask_lead(row.pk, user=boss, reason=WHY)
    number = program.propose("retry", workflow=row.pk)["id"]
    match becomes:
        case "lapsed":
            with without_triggers():
                Proposal.objects.update(lapses_at=timezone.now())
            elsewhere(lambda: do_chore("lapse proposals"))
        case _:
            by = boss if becomes == "refused" else program.user
            proposals.close(number, user=by, seen=[number], reason="No.")
    assert Proposal.objects.get().state == becomes
    assert elsewhere(lambda: do_chore("close what leads were asked").changed) == 0
    assert list(cases.asking().values_list("workflow", flat=True)) == [row.pk]


def test_a_decision_that_is_taken_back_or_may_be_is_no_act(boss: User) -> None:
    row = rows.waiting(task=False)
    task = rows.open_task(row, undoable=True)
    Chore.objects.get_or_create(pk=undoing.CHORE)
    cases.ask_lead(row.pk, user=boss, reason=WHY)
    for act in (undoing.approve, undoing.undo, undoing.approve):
        act(task.pk, user=boss)
        assert elsewhere(lambda: do_chore("close what leads were asked").changed) == 0
    ManualTask.objects.update(held=None)
    assert elsewhere(lambda: do_chore("close what leads were asked").changed) == 1


def test_only_what_was_asked_and_seen_is_seen_to_and_what_is_complete_needs_no_lead(boss: User) -> None:
    row, other = rows.failed(), rows.failed()
    for each in (row, other):
        cases.ask_lead(each.pk, user=boss, reason=WHY)
    seen: list[Any] = [CaseNote.objects.get(workflow=other.pk).pk]
    with pytest.raises(NotAllowed, match="No lead is asked any more"):
        cases.lead_has_seen(row.pk, user=boss, reason="", seen=seen)
    with pytest.raises(NotAllowed, match="It is complete by now"):
        cases.ask_lead(rows.complete().pk, user=boss, reason=WHY)
    assert cases.asking().count() == 2


def test_the_operations_ask_for_the_permission_themselves() -> None:
    row, nobody = rows.failed(), User.objects.create_user("nobody", is_staff=True)
    for operation in (cases.add_note, cases.ask_lead, partial(cases.lead_has_seen, seen=[])):
        with pytest.raises(PermissionDenied):
            operation(row.pk, user=nobody, reason=WHY)


def test_who_asked_finds_the_answer_on_home_until_they_have_looked(as_: Login) -> None:
    row, support, lead, other = rows.failed(), as_("support"), as_("support lead"), as_("engineer")
    page = f"/admin/workflows/workflow/{row.pk}/"
    support.post(f"{page}ask_lead/", {"reason": WHY}, follow=True)

    def told(client: Client) -> list[str]:
        lines = client.get("/admin/").context["first_lines"]
        return [each.what for each in lines if "you asked a lead" in each.what]

    lead.post(f"{page}note/", {"reason": "I call her mother."})
    assert told(support) == [], "a note is no answer"
    seen = re.findall(r'name="seen" value="(\d+)"', lead.get(f"{page}lead_has_seen/").content.decode())
    lead.post(f"{page}lead_has_seen/", {"seen": seen, "reason": "Refunded by hand."})
    assert told(support) == [f"some-support lead has acted on workflow {row.pk}, for which you asked a lead"]
    assert told(other) == told(lead) == []
    support.get(f"{page}change/")
    assert told(support) == []

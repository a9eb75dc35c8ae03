"""The page of a manual task: what is asked, whose it is, until when, and who may see its facts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from onboarding.wording import STEPS
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import offered, page, task, words
from workflows.models import ManualTask, Workflow
from workflows.wording import StepWords

PRICE = {"checkout": {"amount_cents": 14500, "currency": "USD"}}


def test_it_says_whose_it_is_until_when_and_what_happens_then(as_: Login) -> None:
    carla = User.objects.create_user("carla")
    hour = timezone.now() + timedelta(hours=1)
    row = task(team="approver", due_at=hour, on_expiry="rejected", requested_by=carla, four_eyes=True)
    told = words(page(as_("approver"), row))
    for shown in [
        "Requested by carla. It takes four eyes: another user decides.",
        "For the team approver",
        "Assigned to nobody",
        f"Due {hour:%Y-%m-%d %H:%M:%S} UTC",
        f"Expires {row.expires_at:%Y-%m-%d %H:%M:%S} UTC. If nobody has decided by then it counts as rejected",
    ]:
        assert shown in told


def test_it_says_that_nobody_in_its_team_may_decide_it(as_: Login) -> None:
    lead = as_("support lead")
    row = task(team="approver")
    told = "For the team approver. Nobody in the team approver may decide it: its members have to be staff"
    assert told in words(page(lead, row))
    as_("approver")
    assert "Nobody in the team" not in words(page(lead, row))


def test_what_happens_when_nobody_decides_is_said(as_: Login) -> None:
    approver = as_("approver")
    expiries: list[tuple[dict[str, Any], str]] = [
        ({}, "it expires, and the workflow fails"),
        ({"on_expiry": "approved", "state": "expired"}, "nobody decided in time. That counts as approved."),
        ({"task_type": "effect_in_doubt"}, "the workflow fails, and asks again when it is retried"),
        ({"task_type": "step_undeclared"}, "Then it is asked again"),
        ({"task_type": "keeps_being_lost"}, "Then it is tried once more, and you are asked again"),
    ]
    for fields, said in expiries:
        assert said in words(page(approver, task(**fields)))


def test_what_would_be_refused_is_not_offered_and_the_page_says_why(as_: Login) -> None:
    client = as_("approver")
    me, other = User.objects.get(username="some-approver"), User.objects.create_superuser("other")
    taken = {"assignee": other, "claimed_at": timezone.now()}
    for fields, said in [
        ({"team": "packers"}, "It is for the team packers, and you are not in it."),
        ({"requested_by": me, "four_eyes": True}, "You requested this yourself"),
        (taken, "other has claimed it, at "),
    ]:
        html = page(client, task(facts=[["Weight", "ninety-two"]], **fields))
        assert offered(html) == []
        assert said in words(html)
        assert "ninety-two" not in html
    assert offered(page(as_("superuser"), task(**taken))) == ["Unassign"]
    assert offered(page(as_("support"), task())) == []


def test_an_unclear_call_says_where_to_look_with_a_search_and_an_example(
    as_: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = StepWords("Charge the card", where="In the bank's list.", search="https://bank.example.com/?q={key}")
    monkeypatch.setitem(STEPS, "execute_checkout", where)
    workflow = rows.waiting(task=False, workflow_type="onboarding", payload=PRICE)
    row = rows.open_task(workflow, about="execute_checkout", task_type="effect_in_doubt")
    html = page(as_("approver"), row)
    assert "Where to look In the bank's list." in words(html)
    assert f'href="https://bank.example.com/?q={workflow.key}%3Aexecute_checkout"' in html
    Workflow.objects.update(payload={**PRICE, "patient": {"email": "ada@example.com"}})
    ManualTask.objects.update(facts=[["What we know", "Nothing."], ["Idempotency key of the call", "k-1"]])
    html = page(as_("superuser"), row)
    assert "Customer a•••@example.com" in words(html) or "Patient a•••@example.com" in words(html)
    assert '<code id="fact-2">k-1</code> <button type="button" class="button scripted" data-copy="fact-2">Copy' in html
    assert "For example ch_" in html


def test_a_failed_reversal_says_where_to_look_and_what_gives_nothing_back(as_: Login) -> None:
    workflow = rows.waiting(task=False, workflow_type="onboarding", payload=PRICE)
    told = words(page(as_("approver"), rows.open_task(workflow, about="execute_checkout", task_type="undo_in_doubt")))
    assert "Where to look In the payments service, among the charges" in told
    assert "reverse it there first, and then say so here. After “It stays as it is” nothing is given back." in told

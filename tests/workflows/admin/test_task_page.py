"""The page of a manual task: what is asked, whose it is, until when, and who may see its facts."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from onboarding.wording import STEPS
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import offered, page, task, url, words
from workflows.models import Event, ManualTask
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


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "it expires, and the workflow fails"),
        ({"on_expiry": "approved", "state": "expired"}, "nobody decided in time. That counts as approved."),
        ({"task_type": "effect_in_doubt"}, "the workflow fails, and asks again when it is retried"),
        ({"task_type": "step_undeclared"}, "Then it is asked again"),
        ({"task_type": "keeps_being_lost"}, "Then it is tried once more, and you are asked again"),
    ],
)
def test_what_happens_when_nobody_decides_is_said(as_: Login, fields: dict[str, Any], said: str) -> None:
    assert said in words(page(as_("approver"), task(**fields)))


def test_it_is_claimed_and_given_back_with_a_button(as_: Login) -> None:
    client, row = as_("approver"), task()
    assert offered(page(client, row)) == ["Assign to me", "Approve", "Reject"]
    html = client.post(url(row, "claim"), follow=True).content.decode()
    assert re.search(r"It is yours\..*Assigned to some-approver, since \d{4}-", words(html))
    assert offered(html) == ["Unassign", "Approve", "Reject"]
    html = client.post(url(row, "release"), follow=True).content.decode()
    assert re.search(r"It is unassigned\..*Assigned to nobody", words(html))
    kinds = Event.objects.order_by("id").values_list("kind", "actor")
    assert list(kinds) == [("task_claimed", "some-approver"), ("task_released", "some-approver")]


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


def assigned(client: Client, row: ManualTask, to: User, **data: str) -> str:
    form = {"to": str(to.pk), "reason": "", **data}
    return words(client.post(url(row, "assign"), form, follow=True).content.decode())


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
    assert "For example ch_" in html

"""Approve and next: which task comes after a decision, and how many are left."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from urllib.parse import urlencode

from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import offered, page, task, url, words
from workflows.models import ManualTask

MINE = "?" + urlencode({"_changelist_filters": "whose=mine"})


def button(html: str) -> tuple[str, str]:
    """Where the button leads, and its label."""
    action, label = re.findall(r'formaction="([^"]*)">([^<]*)<', html)[0]
    return unescape(action), label


def approve_and_next(client: Client, html: str, **data: str) -> tuple[str, str]:
    """Press it; return the address and the words of the page that comes."""
    response = client.post(button(html)[0], {"decision": "approve", "reason": "", **data}, follow=True)
    return response.redirect_chain[-1][0], words(response.content.decode())


def hours(number: int) -> dict[str, object]:
    return {"due_at": timezone.now() + timedelta(hours=number)}


def test_the_next_is_due_next_and_so_on_until_none_is_left(as_: Login) -> None:
    client = as_("approver")
    later, overdue, soon = task(**hours(5)), task(**hours(-5)), task(**hours(1))
    html = page(client, overdue)
    assert button(html) == (url(overdue, "decide") + "?next=1", "Approve and next (2 left)")
    where, _ = approve_and_next(client, html)
    assert where == url(soon)
    where, _ = approve_and_next(client, page(client, soon))
    assert where == url(later)
    assert offered(page(client, later)) == ["Assign to me", "Approve", "Reject"]
    client.post(url(later, "decide"), {"decision": "approve", "reason": ""})
    assert set(ManualTask.objects.values_list("state", flat=True)) == {"approved"}


def test_only_what_the_user_may_decide_and_of_the_same_type_comes_next(as_: Login) -> None:
    client, other = as_("approver"), User.objects.create_superuser("other")
    me = User.objects.get(username="some-approver")
    Group.objects.create(name="packers")
    row = task()
    for fields in [
        {"task_type": "another"},
        {"team": "packers"},
        {"assignee": other, "claimed_at": timezone.now()},
        {"four_eyes": True, "requested_by": me},
        {"expires_at": timezone.now() - timedelta(seconds=1)},
        {"state": "expired"},
    ]:
        task(**fields)
    assert "and next" not in page(client, row)
    task(assignee=me)
    assert button(page(client, row))[1] == "Approve and next (1 left)"


def test_it_keeps_to_the_filter_of_the_list(as_: Login) -> None:
    client = as_("approver")
    me = User.objects.get(username="some-approver")
    row, mine, _free = task(assignee=me), task(assignee=me, **hours(3)), task(**hours(1))
    listed = client.get("/admin/workflows/manualtask/?whose=mine").content.decode()
    assert url(row) + MINE in unescape(listed)
    html = client.get(url(row) + MINE).content.decode()
    assert button(html)[1] == "Approve and next (1 left)"
    where, _ = approve_and_next(client, html)
    assert where == url(mine) + MINE
    assert "and next" not in client.get(where).content.decode()


def test_when_somebody_else_was_quicker_it_says_so_and_leads_to_the_list(as_: Login) -> None:
    client = as_("approver")
    row, last = task(), task()
    html = page(client, row)
    ManualTask.objects.filter(pk=last.pk).update(state="closed")
    where, said = approve_and_next(client, html)
    assert where == "/admin/workflows/manualtask/"
    assert "There is no other task of this type that you may decide." in said


def test_reject_and_next_rejects_and_goes_on(as_: Login) -> None:
    client = as_("approver")
    first, second = task(**hours(1)), task(**hours(2))
    html = page(client, first)
    ((action, label),) = re.findall(r'value="reject" formaction="([^"]*)" formnovalidate>([^<]*)<', html)
    assert label == "Reject and next (1 left)"
    without = client.post(unescape(action), {"decision": "reject", "reason": ""})
    assert without.context["form"].errors
    response = client.post(unescape(action), {"decision": "reject", "reason": "No."}, follow=True)
    assert response.redirect_chain[-1][0] == url(second)
    assert ManualTask.objects.get(pk=first.pk).state == "rejected"

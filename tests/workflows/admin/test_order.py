"""The columns of the list of workflows, and the orders that it can have."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import words
from tests.workflows.admin.test_lists import LIST, listed
from tests.workflows.admin.test_money import PAID, call
from tests.workflows.admin.test_paging import walk
from tests.workflows.admin.test_patient import PAYLOAD
from workflows.console.base import ConsoleAdmin
from workflows.console.paging import NEXT_PAGE, PREVIOUS_PAGE
from workflows.models import Effect


def columns(client: Client, query: str) -> list[str]:
    """The titles of the columns, with how the list is sorted by each that it can be sorted by."""
    html = client.get(LIST + query).content.decode()
    found = re.findall(r'<th scope="col" class="column-\w+"(?: aria-sort="(\w+)")?>(.*?)</th>', html, re.DOTALL)
    return [f"{words(title)} {sort}".strip() for sort, title in found]


def test_it_is_sorted_by_a_click_on_a_column_and_back_by_another(as_: Login) -> None:
    support = as_("support")
    old, new = rows.workflow().pk, rows.workflow().pk
    assert listed(support, "") == [new, old]
    title = re.search(r'aria-sort="descending">.*?href="(.*?)">Submitted', support.get(LIST).content.decode())
    assert title
    assert listed(support, title[1]) == [old, new]
    assert "Submitted ascending" in columns(support, title[1])


def test_the_oldest_first_lead_through_every_page_and_back(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsoleAdmin, "list_per_page", 3)
    made = [rows.workflow().pk for _ in range(5)]
    boss = as_("superuser")
    assert list(walk(boss, f"{LIST}?order=oldest", NEXT_PAGE)) == [made[:3], made[3:]]
    assert list(walk(boss, f"{LIST}?order=oldest&before=end", PREVIOUS_PAGE)) == [made[2:], made[:3]]


def test_failures_are_sorted_by_when_they_failed_too_and_groups_of_them_only_so(as_: Login) -> None:
    now, support = timezone.now(), as_("support")
    late, early, middle = (
        rows.failed(completed_at=now - timedelta(seconds=seconds), acknowledged_failure=None).pk
        for seconds in (1, 9, 5)
    )
    assert listed(support, "?state=failed") == [middle, early, late]
    assert listed(support, "?state=failed&order=latest") == [late, middle, early]
    assert listed(support, "?state=failed&order=earliest") == [early, middle, late]
    assert listed(support, "?preset=unacknowledged") == [late, middle, early]
    assert listed(support, "?preset=unacknowledged&order=earliest") == [early, middle, late]
    for no_index in ("?preset=unacknowledged&order=oldest", "?state=failed&code=card_declined&order=oldest"):
        assert listed(support, no_index) == [late, middle, early]
    assert listed(support, "?order=earliest") == [middle, early, late], "no index has all rows in that order"


def test_ended_workflows_have_their_end_in_place_of_what_is_next(as_: Login) -> None:
    support = as_("support")
    first = ["Number", "Type", "State", "Step", "Attempts"]
    under_way = [*first, "Waiting for", "Next attempt", "Error", "Money", "Submitted descending"]
    assert columns(support, "?state=waiting") == columns(support, "") == []
    rows.waiting()
    rows.failed()
    assert columns(support, "") == columns(support, "?state=waiting") == under_way
    assert re.search(
        r'next_attempt"><?[^>]*?>?waits until <time', support.get(f"{LIST}?state=waiting").content.decode()
    )
    assert columns(support, "?state=failed") == [*first, "Error", "Money", "Submitted descending", "Ended none"]
    assert columns(support, "?preset=unacknowledged")[-2:] == ["Submitted", "Ended descending"]


def test_what_became_of_the_money_is_on_the_list(as_: Login) -> None:
    for state, result in {"done": PAID, "undone": PAID, "intent": None, "not_done": None}.items():
        row = rows.failed(workflow_type="onboarding", payload=PAYLOAD)
        Effect.objects.create(workflow=row, attempt=1, idempotency_key=f"{row.pk}", **call(state, result))
    rows.workflow(workflow_type="onboarding", payload=PAYLOAD)
    html = as_("support").get(LIST).content.decode()
    told = [words(each) for each in re.findall(r'<td[^>]* class="field-money">(.*?)</td>', html)]
    assert told == ["", "", "$145.00 unclear", "$145.00 refunded", "$145.00 charged"]

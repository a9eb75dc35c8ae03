"""Filters of the list of workflows that are saved under a name."""

from __future__ import annotations

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.test import Client

from tests.workflows.admin.conftest import Login, as_, parcels
from tests.workflows.admin.tasks import words
from tests.workflows.admin.test_lists import LIST
from workflows.features.lists import operations
from workflows.models import SavedView

__all__ = ["as_", "parcels"]

VIEWS = "/admin/saved-views/"


def saved(client: Client, name: str, query: str = "state=failed", **fields: str) -> str:
    """What the console says after a view was saved."""
    answer = client.post(VIEWS, {"name": name, "query": query, **fields}, follow=True)
    return words(answer.content.decode().split('class="messagelist">')[1].split("</ul>")[0])


def links(client: Client, query: str = "") -> dict[str, str]:
    """The links above the list, by their words."""
    (bar,) = re.findall(r'aria-label="Saved views">(.*?)</nav>', client.get(LIST + query).content.decode(), re.DOTALL)
    return {words(label): url for url, label in re.findall(r'<a[^>]*href="([^"]*)"[^>]*>(.*?)</a>', bar, re.DOTALL)}


def test_a_view_is_a_link_above_the_list_for_whoever_saved_it_alone(as_: Login) -> None:
    support = as_("support")
    page = support.get(f"{VIEWS}?state=failed&order=oldest&after=7&payload__x=1").content.decode()
    assert 'name="query" value="state=failed&amp;order=oldest"' in page
    assert "State: Failed Order: Oldest first Name" in words(page)
    assert "Order:" not in words(support.get(f"{VIEWS}?state=failed").content.decode())
    said = saved(support, "  Mine  today ", "state=failed&order=oldest&after=7&payload__x=1")
    assert said == "The view is saved: it is a link above the list."
    assert links(support)["Mine today"] == f"{LIST}?state=failed&amp;order=oldest"
    assert ">Mine today</a>" in support.get(LIST).content.decode()
    assert 'order=oldest" aria-current="true">Mine' in support.get(f"{LIST}?order=oldest&state=failed").content.decode()
    assert list(links(as_("engineer"))) == ["Views"]
    assert list(links(support, "?state=failed")) == ["Mine today", "Save this view"]


def test_a_view_of_a_team_is_for_all_in_it_and_takes_the_right_to_share(as_: Login) -> None:
    lead, support = as_("support lead"), as_("support")
    saved(lead, "Stuck", "state=retrying", team="support")
    assert "Stuck for support" in links(support)
    assert "Stuck for support" in links(lead), "who may share finds what to delete"
    assert "Stuck for support" not in links(as_("approver"))
    logged = LogEntry.objects.get()
    assert logged.get_change_message() == "Saved a view of the list of workflows for the team support."
    assert "There is no such team" in saved(lead, "Lost", team="nobody")
    assert support.post(VIEWS, {"name": "Ours", "query": "state=failed", "team": "support"}).status_code == 403
    view = SavedView.objects.get()
    assert f'value="{view.pk}"' not in support.get(VIEWS).content.decode()
    refused = support.post(VIEWS, {"delete": view.pk}, follow=True)
    assert "no such view that you may delete" in words(refused.content.decode())
    assert f'value="{view.pk}"' in lead.get(VIEWS).content.decode()
    lead.post(VIEWS, {"delete": view.pk})
    assert not SavedView.objects.exists()
    assert LogEntry.objects.count() == 2


def test_nobody_deletes_what_a_colleague_has_saved_for_themselves(as_: Login) -> None:
    support, boss = as_("support"), as_("superuser")
    saved(support, "Mine")
    view = SavedView.objects.get()
    for sent in (str(view.pk), "x", "9" * 30):
        boss.post(VIEWS, {"delete": sent})
    assert SavedView.objects.get() == view
    support.post(VIEWS, {"delete": view.pk})
    assert not SavedView.objects.exists()


def test_what_cannot_be_saved_is_said(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    support = as_("support")
    saved(support, "One")
    monkeypatch.setattr(operations, "MOST", 2)
    assert "There is a view “One” already" in saved(support, "One", "state=waiting")
    assert "Give the view a name" in saved(support, " ")
    assert "Give the view a name" in saved(support, "x" * 61)
    assert "There is a view “One” already" in saved(support, "O\0ne"), "PostgreSQL cannot store a NUL"
    assert "There is no such team" in saved(as_("support lead"), "One", team="nobody\0")
    for nothing in ("", "payload__email=x", "state="):
        assert "Filter the list first" in saved(support, "Two", nothing)
    saved(support, "Two")
    assert "There are 2 views already" in saved(support, "Three")
    assert SavedView.objects.count() == 2
    user = User.objects.create_user("stranger")
    with pytest.raises(PermissionDenied):
        operations.save(user=user, name="Four", query="state=failed")


def test_a_view_of_an_older_release_is_no_link_and_can_be_deleted(as_: Login) -> None:
    support = as_("support")
    user = User.objects.get(username="some-support")
    view = SavedView.objects.create(name="Old", query="state=failed&gone=1", owner=user, saved_by="some-support")
    assert "Old (out of date)" in words(support.get(LIST).content.decode())
    assert "Old" not in links(support)
    assert "Out of date: the list has no such filter any more" in words(support.get(VIEWS).content.decode())
    support.post(VIEWS, {"delete": view.pk})
    assert not SavedView.objects.exists()

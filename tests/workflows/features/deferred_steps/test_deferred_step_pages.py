"""The page of a workflow whose best-effort step failed, "Run again", and those that were given up, on home."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels
from tests.workflows.admin.targets import run_again
from workflows.models import Effect, Event, FollowUp, Workflow

__all__ = ["as_", "parcels"]

HOUR = timedelta(hours=1)


def text(client: Client, url: str) -> str:
    html = unescape(client.get(url).content.decode())
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html))


def page(client: Client, row: Workflow) -> str:
    return text(client, f"/admin/workflows/workflow/{row.pk}/change/")


# --- What becomes of them ------------------------------------------------------------------------


def test_of_one_that_is_to_be_tried_it_says_when(as_: Login) -> None:
    row = rows.left_undone()
    later = timezone.now() + HOUR
    FollowUp.objects.create(workflow=row, step="thank", queue="default", due_at=later, failures=1, asked_by="ada")
    shown = page(as_("support"), row)
    assert f"Still to be done: “Thank”, ada has asked for it, the next try is at {later:%H:%M}"[:62] in shown
    assert "It has failed once since." in shown
    FollowUp.objects.update(due_at=timezone.now() - HOUR, failures=0)
    assert "a worker takes it as soon as one is free." in page(as_("support"), row)


# --- Run again ----------------------------------------------------------------------------------


def test_it_says_what_becomes_of_its_call(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows.PARCEL, "steps", (*rows.PARCEL.steps, rows.TELL))
    support = as_("support")
    for state, told in {
        "not_done": "its call, which has not happened, is made.",
        "done": "its call is on record as done, and is not made again.",
        "unknown": "so it is repeated under its old key, and counts once.",
    }.items():
        row = rows.given_up("tell")
        result = {} if state == "done" else None
        Effect.objects.create(workflow=row, step="tell", state=state, attempt=1, idempotency_key=state, result=result)
        assert told in text(support, f"/admin/workflows/workflow/{row.pk}/follow_up/")


def test_it_is_done_in_the_name_of_who_asked_and_needs_no_reason(as_: Login) -> None:
    url, data = run_again()
    response = as_("support").post(url, {**data, "reason": ""}, follow=True)
    assert "A worker runs it as soon as one is free." in response.content.decode()
    event = Event.objects.latest("id")
    assert (event.kind, event.actor, event.step) == ("follow_up_asked", "some-support", "thank")
    assert FollowUp.objects.get().due_at
    assert "Run again" in response.content.decode()


def test_of_several_one_is_chosen_and_none_by_default(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows.PARCEL, "steps", (*rows.PARCEL.steps, rows.TELL))
    row = rows.given_up()
    rows.event(row, "best_effort_failed", attempt=1, step="tell")
    url, client = f"/admin/workflows/workflow/{row.pk}/follow_up/", as_("support")
    assert " checked" not in client.get(url).content.decode()
    assert "step" in client.post(url, {"reason": ""}).context["form"].errors
    client.post(url, {"step": "tell", "reason": ""})
    assert list(FollowUp.objects.exclude(due_at=None).values_list("step", flat=True)) == ["tell"]

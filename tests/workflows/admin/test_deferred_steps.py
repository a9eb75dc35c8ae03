"""The page of a workflow whose best-effort step failed, "Run again", and those that were given up, on home."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.targets import run_again
from workflows.models import Attempt, Effect, Event, FollowUp, Workflow

HOUR = timedelta(hours=1)


def text(client: Client, url: str) -> str:
    html = unescape(client.get(url).content.decode())
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html))


def page(client: Client, row: Workflow) -> str:
    return text(client, f"/admin/workflows/workflow/{row.pk}/change/")


# --- What becomes of them ------------------------------------------------------------------------


def test_of_one_that_was_given_up_it_says_how_often_it_failed_and_why(as_: Login) -> None:
    told = "Still to be done: “Thank”, given up. It has failed 3 times since. Last for this: gone: The address is gone."
    assert told in page(as_("support"), rows.given_up())


def test_of_one_that_is_to_be_tried_it_says_when(as_: Login) -> None:
    row = rows.left_undone()
    later = timezone.now() + HOUR
    FollowUp.objects.create(workflow=row, step="thank", queue="default", due_at=later, failures=1, asked_by="ada")
    shown = page(as_("support"), row)
    assert f"Still to be done: “Thank”, ada has asked for it, the next try is at {later:%H:%M}"[:62] in shown
    assert "It has failed once since." in shown
    FollowUp.objects.update(due_at=timezone.now() - HOUR, failures=0)
    assert "a worker takes it as soon as one is free." in page(as_("support"), row)


def test_of_one_that_is_under_way_it_says_so_and_of_one_whose_workers_died_how_many(as_: Login) -> None:
    row = rows.left_undone()
    FollowUp.objects.create(workflow=row, step="thank", queue="default", due_at=timezone.now() + HOUR, tries=2)
    assert "Workers have started it 2 times and never finished." in page(as_("support"), row)
    Attempt.objects.create(workflow=row, number=2, worker="host-a:41")
    assert "Still to be done: “Thank”, a worker is at it." in page(as_("support"), row)


def test_what_was_done_since_was_not_passed_over(as_: Login) -> None:
    row = rows.left_undone()
    assert "This step failed; the workflow went on without it. Thank:" in page(as_("support"), row)
    assert "Passed over" not in page(as_("support"), rows.given_up()), "it has a line of its own"
    rows.event(row, "followed_up", attempt=2, step="thank")
    assert "Passed over" not in page(as_("support"), row)


# --- Run again ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "role", "is_offered"),
    [
        (rows.left_undone, "support", True),
        (rows.given_up, "engineer", True),
        (rows.given_up, "auditor", False),
        (rows.given_up, "approver", False),
        (rows.complete, "support", False),
        (rows.failed, "support", False),
    ],
)
def test_it_is_offered_where_a_step_failed_to_those_who_may(
    make: Callable[[], Workflow], role: str, is_offered: bool, as_: Login
) -> None:
    response = as_(role).get(f"/admin/workflows/workflow/{make().pk}/change/")
    assert ("Run again" in [verb.label for verb, _ in response.context["verbs"]]) == is_offered


def test_it_is_not_offered_once_it_is_due(as_: Login) -> None:
    row = rows.given_up()
    FollowUp.objects.update(due_at=timezone.now() - HOUR)
    response = as_("support").get(f"/admin/workflows/workflow/{row.pk}/change/")
    assert response.context["verbs"] == []


def test_its_page_says_what_will_happen_to_this_one(as_: Login) -> None:
    url, _ = run_again()
    shown = text(as_("support"), url)
    assert "Run a failed step again?" in shown
    assert "“Thank” is run as soon as a worker is free: whatever it calls is called again." in shown
    assert "The last reason: gone: The address is gone." in shown
    assert "No other step is run, and the workflow stays complete" in shown


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("not_done", "its call, which has not happened, is made."),
        ("done", "its call is on record as done, and is not made again."),
        ("unknown", "so it is repeated under its old key, and counts once."),
    ],
)
def test_it_says_what_becomes_of_its_call(state: str, told: str, as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    row = rows.given_up("tell")
    monkeypatch.setattr(rows.PARCEL, "steps", (*rows.PARCEL.steps, rows.TELL))
    result = {} if state == "done" else None
    Effect.objects.create(workflow=row, step="tell", state=state, attempt=1, idempotency_key="k", result=result)
    assert told in text(as_("support"), f"/admin/workflows/workflow/{row.pk}/follow_up/")


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


def test_what_was_done_since_the_page_was_opened_is_not_done_again(as_: Login) -> None:
    url, data = run_again()
    FollowUp.objects.all().delete()
    rows.event(Workflow.objects.get(), "followed_up", attempt=3, step="thank")
    (told,) = as_("support").post(url, data).context["form"].errors["step"]
    assert told == "It has not failed, or was done since."
    assert not FollowUp.objects.exists()


# --- Home ---------------------------------------------------------------------------------------

LIST = "/admin/needs-a-person/?kind=given-up"


def test_home_counts_the_deferred_steps_that_were_given_up_and_links_to_just_these(as_: Login) -> None:
    given_up = [rows.given_up(), rows.given_up()]
    FollowUp.objects.create(workflow=given_up[0], step="reserve", queue="default", due_at=None)
    rows.left_undone()
    to_come = rows.left_undone()
    FollowUp.objects.create(workflow=to_come, step="thank", queue="default", due_at=timezone.now() + HOUR)
    rows.failed()
    client = as_("support")
    assert client.get("/admin/").context["needs_a_person"] == "4"
    listed = [line.workflow for line in client.get(LIST).context["lines"]]
    assert listed == [given_up[0].pk, given_up[1].pk, given_up[0].pk]

"""Pages that look again: a look that has seen all of it costs one statement, and one that has not gets the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, ours
from tests.workflows.admin.tasks import task, url
from tests.workflows.features.outages.services import open_circuit
from workflows.console import looks
from workflows.health import needs_a_person as needs
from workflows.models import Pace

LOOK = {looks.BACKGROUND: "1"}
PAGES: dict[str, Callable[[], Any]] = {
    "": task,
    "needs-a-person/": rows.failed,
    "workflows/manualtask/": lambda: rows.event(rows.workflow(), "noted", actor="ada"),
    "workflows/service/": lambda: open_circuit("payments"),
    "workflows/pace/": lambda: Pace.objects.create(key="queue:slow", held_until=timezone.now()),
    "workflows/workerprocess/": lambda: rows.worker(1),
}


@pytest.fixture(autouse=True)
def _one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn of the clock during a test, and nothing shared with the one before."""
    monkeypatch.setattr(looks, "_shared", [])
    monkeypatch.setattr(looks, "LOOKS", {name: sql.replace(" / ", " / 1e12 / ") for name, sql in looks.LOOKS.items()})


def look(client: Client, at: str, seen: str) -> Any:
    return client.get(f"/admin/{at}", headers={**LOOK, looks.SEEN: seen})


@pytest.mark.parametrize("at", PAGES)
def test_a_look_gets_the_page_only_if_something_has_changed(as_: Login, at: str) -> None:
    client = as_("superuser")
    page = client.get(f"/admin/{at}")
    seen = page.context["look"]
    assert f'data-look="{seen}"' in page.content.decode()
    assert (look(client, at, seen).status_code, look(client, at, seen).content) == (204, b"")
    PAGES[at]()
    answer = look(client, at, seen)
    assert (answer.status_code, answer.context["look"] == seen) == (200, False)
    html = answer.content.decode()
    assert 'id="live"' in html
    assert "<nav" not in html.split('id="live"')[0], "the bar stays"
    assert look(client, at, answer.context["look"]).status_code == 204


def test_a_look_reads_whose_session_it_is_and_what_has_changed(as_: Login) -> None:
    client = as_("superuser")
    seen = client.get("/admin/").context["look"]
    with CaptureQueriesContext(connection) as captured:
        assert look(client, "", seen).status_code == 204
    assert ours(captured) == 1, "the user; what has changed is read beside Django"


def test_where_something_changes_all_the_time_a_page_is_made_twice_at_once_and_then_every_half_minute(
    as_: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty people look at Home while a hundred workflows fail a second: each look had the price of the page."""
    client, now = as_("superuser"), 1_800_000_000
    monkeypatch.setattr(looks, "time", lambda: now)
    seen, made = client.get("/admin/").context["look"], []
    for second in range(0, 120, 5):
        now = 1_800_000_000 + second
        task()
        with CaptureQueriesContext(connection) as captured:
            answer = look(client, "", seen)
        if answer.status_code == 200:
            made.append(second)
            seen = answer.context["look"]
        else:
            assert ours(captured) == 1, "no statement but the user's"
    assert made == [0, 5, 30, 60, 90]
    now -= 3600
    assert look(client, "", seen).status_code == 200, "a clock that was set back keeps nothing from anybody"


def test_looks_share_figures_of_the_same_news_and_each_user_sees_them_by_their_own_rights(as_: Login) -> None:
    boss, approver = as_("superuser"), as_("approver")
    seen = {each: each.get("/admin/").context["look"] for each in (boss, approver)}
    open_circuit("payments")
    rows.parked()
    task()
    of_boss, of_approver = (look(each, "", seen[each]) for each in (boss, approver))
    assert of_boss.context["glance"] is of_approver.context["glance"], "read once"
    assert ">payments</a> has been down" in of_boss.content.decode()
    assert "a service has been down" in of_approver.content.decode()
    assert ">payments<" not in of_approver.content.decode()
    assert boss.get("/admin/").context["glance"] is not of_boss.context["glance"], "a person's page has its own"


def test_in_a_storm_looks_share_figures_for_a_moment_and_what_came_since_is_their_next_news(
    as_: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    boss, calm, now = as_("superuser"), as_("operations"), 1_800_000_000
    monkeypatch.setattr(looks, "time", lambda: now)
    monkeypatch.setattr(looks, "monotonic", lambda: now)
    seen, task_1 = boss.get("/admin/").context["look"], task()
    first = look(boss, "", seen)
    seen_calm = calm.get("/admin/").context["look"]
    now, task_2 = now + 5, task()
    second = look(boss, "", first.context["look"])
    shown = [each.context["glance"].tasks.number for each in (first, second)]
    assert (task_1.pk < task_2.pk, shown) == (True, [1, 1])
    assert second.context["look"].startswith(first.context["look"][:16]), "it has not seen the second task"
    assert look(calm, "", seen_calm).context["glance"].tasks.number == 2, "whose page had no news gets all of them"
    now += looks.EVERY + looks.SHARED
    assert look(boss, "", second.context["look"]).context["glance"].tasks.number == 2


def test_a_look_waits_a_moment_only_for_the_figures_of_another(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "WAITS", 0.01)
    with looks._reading:  # of which the database is silent
        assert look(as_("superuser"), "", "nothing").status_code == 200


def test_a_page_that_a_person_loads_is_made_whatever_it_says_to_have_seen(as_: Login) -> None:
    client = as_("superuser")
    seen = client.get("/admin/").context["look"]
    assert client.get("/admin/", headers={looks.SEEN: seen}).status_code == 200


@pytest.mark.parametrize("paid", ["", "x", "-1", "9" * 30, "²", "1.5"])
def test_a_look_that_says_nonsense_gets_the_page(as_: Login, paid: str) -> None:
    assert look(as_("superuser"), "", f"0123456789abcdef.{paid}").status_code == 200


def test_what_changes_while_a_page_is_made_is_news_for_its_next_look(
    as_: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = as_("superuser")
    meanwhile = "workflows.console.needs_a_person.needs.page_and_count"
    monkeypatch.setattr(meanwhile, lambda asked, after: (needs.Page([], None), task().pk))
    seen = client.get("/admin/needs-a-person/").context["look"]
    assert look(client, "needs-a-person/", seen).status_code == 200


def test_a_look_leaves_a_message_to_the_user(as_: Login) -> None:
    client = as_("superuser")
    row = task()
    client.post(url(row, "claim"))
    assert look(client, "needs-a-person/", "nothing").status_code == 200
    said = [str(each) for each in client.get("/admin/needs-a-person/").context["messages"]]
    assert said == ["It is yours."]

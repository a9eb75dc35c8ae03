"""The pages of bulk operations: choosing from a list, what would happen, how far it is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models.functions import Now
from django.test import Client

from tests.plans import Plan, explained
from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels, queries
from tests.workflows.admin.targets import chosen
from tests.workflows.operations.test_bulk import carry_out, end
from workflows.console.base import ConsoleAdmin
from workflows.features.bulk import operations as bulk
from workflows.features.bulk import results as bulk_results
from workflows.models import BulkItem, BulkOperation, Event, ManualTask, Workflow
from workflows.operations.bulk_verbs import verbs

__all__ = ["as_", "parcels"]

LIST = "/admin/workflows/workflow/"


def ids() -> list[int]:
    return list(BulkItem.objects.filter(operation=BulkOperation.objects.latest("pk")).values_list("row", flat=True))


def choose(client: Client, query: str, verb: str = "retry") -> Any:
    return client.post(f"{LIST}?{query}", {"bulk_all": verb}, follow=True)


def test_all_that_a_list_shows_on_whatever_page_can_be_chosen_and_retried(
    as_: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConsoleAdmin, "list_per_page", 3)
    made = [rows.failed(current_step="charge").pk for _ in range(7)]
    other, client = rows.failed(current_step="review"), as_("support lead")
    assert "Retry all 7" in client.get(f"{LIST}?state=failed&step=charge").content.decode()
    page = choose(client, f"state=failed&step=charge&after={made[4]}")
    assert ids() == made
    assert "All 7 chosen are retried" in page.content.decode()
    plans: list[Plan] = []
    with explained(plans, lambda sql: sql.startswith('SELECT "workflows_workflow"."id"')):
        assert "Start" in client.get(page.wsgi_request.path.replace("start", "change")).content.decode()
    assert ["LIMIT 100" in looked.sql for looked in plans] == [True], "not what becomes of all"
    done = client.post(page.wsgi_request.path, {"reason": "The bank is back.", "pace": "50"}, follow=True)
    assert "0 of 7 dealt with" in done.content.decode()
    row = BulkOperation.objects.get()
    assert (row.state, row.chosen_by) == ("running", "state: Failed; step: Charge")
    carry_out(row)
    assert Workflow.objects.get(status="FAILED") == other
    page = client.get(f"/admin/workflows/bulkoperation/{row.pk}/change/")
    assert "All 7 are retried. 0 complete, 7 under way." in page.content.decode()
    history = client.get(f"{LIST}{made[0]}/change/").content.decode()
    assert f"In bulk operation {row.pk}." in history


def test_the_ticked_rows_alone_are_chosen(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [rows.failed() for _ in range(3)]
    page = as_("support").post(LIST, chosen(made[0], made[2]), follow=True)
    assert ids() == [made[0].pk, made[2].pk]
    assert "Start the retry of 2 workflows?" in page.content.decode()
    monkeypatch.setattr(bulk, "alone", lambda *_: 1)
    html = as_("support").get(page.request["PATH_INFO"]).content.decode()
    assert "Start the retry of 2 workflows when approved?" in html
    assert not Event.objects.exists()
    as_("support").post(f"{LIST}?state=failed", {**chosen(made[0]), "select_across": "1"})
    assert ids() == [row.pk for row in made]


def test_rows_of_several_arms_are_chosen(as_: Login) -> None:
    made = [rows.workflow().pk, rows.retrying(begun=True, invisible_until=Now()).pk]
    choose(as_("support"), "state=queued", verb="cancel")
    assert ids() == made


def test_who_may_not_do_it_is_not_offered_it_and_cannot_choose(as_: Login) -> None:
    rows.failed()
    client = as_("auditor")
    assert "bulk_all" not in client.get(f"{LIST}?state=failed").content.decode()
    assert choose(client, "state=failed").status_code == 403
    assert not BulkOperation.objects.exists()


def test_a_page_says_what_came_of_each_item_and_takes_as_many_queries_for_many(as_: Login) -> None:
    client = as_("support")
    by = User.objects.get()
    one = rows.bulk_operation(by, rows.failed(), outcome="skipped", why="It is complete.")
    url = "/admin/workflows/bulkoperation/{}/change/"
    client.get(url.format(one.pk))  # Django keeps content types
    few = queries(client, url.format(one.pk))
    many = rows.bulk_operation(by, *(rows.failed() for _ in range(60)), outcome="skipped", why="It is complete.")
    assert queries(client, url.format(many.pk)) == few
    page = client.get(url.format(many.pk)).content.decode()
    assert "60 skipped: It is complete." in page
    assert (page.count("badge-item-skipped"), page.count("Failed again")) == (50, 0)
    after = many.items.order_by("id")[49].pk
    assert client.get(f"{url.format(many.pk)}?after={after}").content.decode().count("badge-item-skipped") == 10
    for nothing in ("outcome=done", "became=failed"):
        assert client.get(f"{url.format(many.pk)}?{nothing}").content.decode().count("badge-item-") == 0


def test_what_became_of_the_items_is_told_while_it_changes_and_decides_the_colour(as_: Login) -> None:
    client = as_("support lead")
    failing = [rows.failed() for _ in range(8)]
    made = rows.bulk_operation(User.objects.get(), *failing, state="running", pace=50)
    url = "/admin/workflows/bulkoperation/"
    of_it = f"{url}{made.pk}/change/"
    carry_out(made)

    def looks(complete: int) -> tuple[bool, str, str]:
        """Whether its page asks again; its colour; what the list says, if it is what the page says."""
        for row in failing[:complete]:
            end(row, status="COMPLETE")
        page, listed = client.get(of_it), client.get(url).content.decode()
        told = str(page.context["ended"])
        assert f"All 8 are retried. {told}." in page.content.decode()
        assert f"badge badge-{page.context['tone']}" in listed
        assert f">{told}<" in listed
        return page.context["is_at_rest"], page.context["tone"], told

    assert looks(0) == (False, "busy", "0 complete, 8 under way")
    for row in failing:
        end(row)
    assert looks(0) == (True, "bad", "0 complete, 8 failed again")
    assert looks(5) == (True, "bad", "5 complete, 3 failed again")
    page = client.get(f"{of_it}?became=failed").content.decode()
    assert (page.count("Failed again</span>"), page.count("Complete</span>")) == (3, 0)
    assert looks(8) == (True, "good", "8 complete")
    made.items.filter(row=failing[0].pk).update(outcome="failed")
    assert ">7 complete, 1 ended in an error<" in client.get(url).content.decode()


def test_what_became_of_very_many_costs_two_pages_an_item_and_the_list_looks_at_no_more(
    as_: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, many = as_("support lead"), 300
    others = [rows.failed() for _ in range(many)]
    Event.objects.bulk_create(Event(workflow=row, kind=kind) for row in others for kind in ("failed",) * 20)
    made = [rows.bulk_operation(User.objects.get(), *others, state="done", outcome="done") for _ in range(2)]
    plans: list[Plan] = []
    monkeypatch.setattr(bulk_results, "MOST_LISTED", many)
    with explained(plans, lambda sql: "workflows_event" in sql and "COUNT" in sql):
        page = client.get("/admin/workflows/bulkoperation/").content.decode()
    (plan,) = plans
    assert "event_of_workflow" in plan.indexes
    assert plan.buffers < 12 * many
    assert (page.count("0 complete, 300 failed again"), page.count("see its page")) == (1, 1)
    assert made


def test_a_second_person_finds_it_reads_what_would_happen_and_approves(as_: Login) -> None:
    support, lead = as_("support"), as_("support lead")
    by = User.objects.get(username="some-support")
    row = rows.bulk_operation(by, rows.failed(acknowledged_failure=Now()), state="asked", four_eyes=True)
    url = f"/admin/workflows/bulkoperation/{row.pk}/"
    told = "some-support asks for the retry of 1 workflow: The bank is back."
    for where, number in {"/admin/needs-a-person/": "1 is for you", "/admin/": "All for you: 1 line<"}.items():
        page = lead.get(where).content.decode()
        assert told in page
        assert number in page
        assert f'href="{url}change/"' in page
        assert told not in support.get(where).content.decode()
    assert "another user approves it" in support.get(f"{url}change/").content.decode()
    page = lead.get(f"{url}approve/").content.decode()
    assert "The bank is back." in page
    assert "1 of the 1 chosen is retried" in page
    lead.post(f"{url}approve/", {"reason": ""})
    row.refresh_from_db()
    assert row.state == "running"


TASKS = "/admin/workflows/manualtask/"


@pytest.mark.parametrize("verb", verbs())
def test_what_would_happen_can_be_read_of_each_verb_whatever_its_state(verb: str, as_: Login) -> None:
    client = as_("superuser")
    row = rows.bulk_operation(User.objects.get(), rows.cancelled(), verb=verb, arguments={"step": "thank"})
    for state in BulkOperation.State:
        BulkOperation.objects.update(state=state)
        for page in ("start", "approve"):
            answer = client.get(f"/admin/workflows/bulkoperation/{row.pk}/{page}/", follow=True)
            assert answer.status_code == 200, (state, page)


def test_a_preview_passes_its_workflows_as_one_array(as_: Login) -> None:
    client, given = as_("superuser"), list[int]()
    row = rows.bulk_operation(User.objects.get(), *(rows.failed() for _ in range(60)), rows.cancelled())

    def count(execute: Any, sql: str, parameters: Any, *rest: Any) -> Any:
        given.append(len(parameters or ()))
        return execute(sql, parameters, *rest)

    with connection.execute_wrapper(count):
        page = client.get(f"/admin/workflows/bulkoperation/{row.pk}/start/").content.decode()
    assert "60 of the 61 chosen are retried" in page
    assert max(given) < 60


def test_a_lead_assigns_the_ticked_tasks_or_all_of_a_filter(as_: Login) -> None:
    client, approver = as_("support lead"), as_("approver")
    carla = User.objects.get(username="some-approver")
    rows.paused(User.objects.get(username="some-support lead"), until=timedelta(hours=-1))
    assert "Assign the ticked" not in client.get(TASKS).content.decode(), "nothing can be ticked"
    first, second = [rows.open_task(rows.waiting(task=False)) for _ in range(2)]
    other = rows.open_task(rows.waiting(task=False), task_type="other_review")
    assert "Assign the ticked" in client.get(f"{TASKS}?whose=all").content.decode()
    page = client.post(TASKS, {"task": [first.pk], "bulk": "ticked"}, follow=True)
    assert (ids(), "Start the assignment of 1 task?" in page.content.decode()) == ([first.pk], True)
    answer = {"to": carla.pk, "reason": "You know them.", "pace": "50"}
    client.post(page.wsgi_request.path, answer)
    row = BulkOperation.objects.get()
    carry_out(row)
    assert ManualTask.objects.get(assignee=carla) == first
    assert "some-approver" in client.get(f"/admin/workflows/bulkoperation/{row.pk}/change/").content.decode()
    assert "Assign all 2" in client.get(f"{TASKS}?whose=all&task_type={second.task_type}").content.decode()
    client.post(f"{TASKS}?whose=all&task_type={second.task_type}", {"bulk_all": "assign"})
    assert ids() == [first.pk, second.pk]
    assert client.post(TASKS, {"bulk_all": "assign"}).status_code == 400, "all, without a filter"
    assert client.post(f"{TASKS}?whose=mine", {"bulk_all": "assign"}).status_code == 400, "more than tasks"
    assert client.post(TASKS, {"task": ["x"]}).status_code == 400
    assert "Nothing is chosen" in client.post(TASKS, {"bulk": "ticked"}, follow=True).content.decode()
    assert approver.post(TASKS, {"task": [other.pk]}).status_code == 403
    assert "Assign the ticked" not in approver.get(TASKS).content.decode()

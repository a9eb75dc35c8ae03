"""Home's first line as people see it: what it rests on, where its numbers lead, who sees what, and what it costs."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.features.outages.services import open_circuit
from workflows.health import recent_failures
from workflows.models import Attempt, Effect, FollowUp, ManualTask, Workflow
from workflows.postgres import statements

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def home(client: Client) -> str:
    return client.get("/admin/").content.decode()


def sentence(client: Client) -> str:
    (html,) = re.findall(r'<p class="standing health.*?</p>', home(client), re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", "", html)))


def links(client: Client) -> dict[str, str]:
    """The sentence's and the numbers': what each says, and where it leads."""
    html = home(client)
    shown = [*re.findall(r'<p class="standing health.*?</p>', html, re.DOTALL), html.split('numbers">')[1]]
    found = re.findall(r'<a [^>]*href="([^"]*)"[^>]*>(.*?)</a>', "".join(shown), re.DOTALL)
    return {" ".join(re.sub(r"<[^>]*>", "", text).split()): unescape(url) for url, text in found}


def listed(client: Client, url: str) -> set[int]:
    response = client.get(url)
    assert response.status_code == 200
    return {row.pk for row in response.context["cl"].result_list}


def task(**fields: Any) -> ManualTask:
    return rows.open_task(rows.waiting(task=False), **fields)


def due(how_long: timedelta, **fields: Any) -> Workflow:
    return rows.workflow(invisible_until=timezone.now() - how_long, **fields)


# --- What it rests on ---------------------------------------------------------------------------


def test_the_oldest_is_one_that_a_live_worker_takes(as_: Login) -> None:
    rows.worker()
    due(9 * MINUTE, queue="elsewhere")
    running = due(8 * MINUTE)
    Attempt.objects.create(workflow=running, number=1, worker="host-a:41")
    oldest = due(5.5 * MINUTE)
    due(3 * MINUTE)
    support = as_("support")
    assert sentence(support) == (
        "In trouble: no live worker takes what is due in the queue elsewhere, where the oldest waits 9 min; "
        "the oldest waits 5 min."
    )
    assert links(support)["5 min"] == f"/admin/workflows/workflow/{oldest.pk}/change/"


def test_a_worker_for_compensation_only_takes_no_submission(as_: Login) -> None:
    rows.worker(only="compensation")
    rows.compensating(invisible_until=timezone.now() - 7 * MINUTE)
    support = as_("support")
    assert sentence(support) == "Slow: the oldest waits 7 min."
    due(2 * MINUTE)
    assert "no live worker takes what is due in the queue default, where the oldest waits 2 min" in sentence(support)
    rows.worker(2)
    assert sentence(support) == "Slow: the oldest waits 7 min."


@pytest.mark.parametrize("begun", [False, True])
def test_what_is_due_waits_whether_it_has_started_or_not(as_: Login, begun: bool) -> None:
    """Each of the two has an index of its own."""
    rows.worker()
    due(10 * MINUTE, begun=begun)
    assert "the oldest waits 10 min" in sentence(as_("support"))
    due(timedelta(days=2), queue="elsewhere", begun=begun)
    assert "the queue elsewhere, where the oldest waits 2 d; the oldest waits 10 min." in sentence(as_("support"))


def test_tasks_are_overdue_from_the_time_that_they_ought_to_be_decided_by(as_: Login) -> None:
    rows.worker()
    now = timezone.now()
    late = task(due_at=now - MINUTE)
    task(due_at=now + HOUR)
    task()
    ended = task(due_at=now - HOUR)
    Workflow.objects.filter(pk=ended.workflow_id).update(status="FAILED", completed_at=now - 48 * HOUR)
    approver = as_("approver")
    assert sentence(approver) == "People are needed: 1 task is overdue."
    page = approver.get(links(approver)["1 task is overdue"]).content.decode()
    assert re.findall(r"/manualtask/(\d+)/change/", page) == [str(late.pk)]


def test_a_wait_is_overdue_from_the_time_that_it_ought_to_be_over_by(as_: Login) -> None:
    rows.worker()
    late = rows.overdue_wait()
    rows.overdue_wait(due=HOUR)
    support = as_("support")
    assert sentence(support) == "People are needed: 1 wait is overdue."
    page = support.get(links(support)["1 wait is overdue"]).content.decode()
    assert set(re.findall(r"/workflow/(\d+)/change/", page)) == {str(late.pk)}


def test_a_refund_that_failed_days_ago_is_no_well_being_and_each_reason_leads_to_what_it_counted(as_: Login) -> None:
    rows.worker()
    days_ago = timezone.now() - 120 * HOUR
    of = {kind: task(task_type=kind, due_at=days_ago) for kind in ("effect_in_doubt", "undo_in_doubt", "before_undo")}
    still = task(task_type="effect_in_doubt", due_at=timezone.now() + HOUR)
    held = rows.failed(workflow_type="parcels", completed_at=days_ago, acknowledged_failure=None)
    rows.failed(completed_at=days_ago)
    Effect.objects.create(workflow=held, step="charge", state="unknown", attempt=1, idempotency_key="k")
    lost = rows.undelivered_message()
    boss = as_("superuser")
    assert sentence(boss) == (
        "In trouble: 1 unclear call is overdue; 1 failed reversal is overdue; 1 reversal to decide is overdue; "
        "2 unclear calls wait for a person; "
        "1 failed workflow holds money, and nobody has acknowledged it; 1 message could not be delivered."
    )
    page = boss.get(links(boss)["2 unclear calls wait for a person"]).content.decode()
    assert {*re.findall(r"/manualtask/(\d+)/change/", page)} == {str(of["effect_in_doubt"].pk), str(still.pk)}
    found = {text: url for text, url in links(boss).items() if text.startswith("1 ")}
    for (kind, row), text in zip(of.items(), found, strict=False):
        page = boss.get(found[text]).content.decode()
        assert re.findall(r"/manualtask/(\d+)/change/", page) == [str(row.pk)], kind
    assert listed(boss, found["1 failed workflow holds money"]) == {held.pk}
    assert listed(boss, found["1 message"]) == {lost.pk}


def deferred(how_long: timedelta, queue: str = "nightly") -> Workflow:
    row = rows.left_undone(queue=queue)
    FollowUp.objects.create(workflow=row, step="thank", queue=queue, due_at=timezone.now() - how_long)
    return row


def test_what_no_worker_will_ever_take_is_told_within_the_hour_and_listed(as_: Login) -> None:
    rows.worker()
    left = {"waiting_for": "a release that knows the workflow type gone", "invisible_until": timezone.now() + HOUR}
    gone = rows.workflow(workflow_type="gone", **left)
    rows.complete(workflow_type="gone")
    boss = as_("superuser")
    assert sentence(boss) == "Something stands still: 1 workflow waits for a release that knows its type."
    refund = rows.compensating(workflow_type="gone", **left)
    late = {(twice := deferred(31 * MINUTE)).pk, deferred(2 * HOUR, "default").pk}
    FollowUp.objects.create(workflow=twice, step="tell", queue="nightly", due_at=timezone.now() - HOUR)
    deferred(29 * MINUTE), deferred(-HOUR), rows.given_up()
    assert sentence(boss) == (
        "In trouble: 2 workflows wait for a release that knows their type, 1 of them to be reversed; "
        "2 workflows have a deferred step that no worker has taken for half an hour."
    )
    found = links(boss)
    assert listed(boss, found["2 workflows wait for a release that knows their type"]) == {gone.pk, refund.pk}
    assert listed(boss, found["1 of them"]) == {refund.pk}
    assert listed(boss, found["2 workflows"]) == late


# --- Its numbers --------------------------------------------------------------------------------


def test_each_number_leads_to_exactly_the_rows_that_it_counted(as_: Login) -> None:
    now = timezone.now()
    workers = {rows.worker(pid).pk for pid in (1, 2)}
    rows.worker(3, last_seen=now - HOUR)
    rows.worker(4, stopped_at=now)
    unexpected = {rows.failed(completed_at=now - 10 * MINUTE, last_error_code="odd").pk for _ in range(11)}
    hour = {*unexpected, rows.failed(completed_at=now - 10 * MINUTE, last_error_code="expired").pk}
    day = {rows.failed(completed_at=now - 2 * HOUR).pk, rows.failed(completed_at=now - 23 * HOUR).pk}
    rows.failed(completed_at=now - 25 * HOUR)
    rows.cancelled(completed_at=now - MINUTE)
    rows.retrying()
    open_circuit("payments")
    parked = {rows.parked().pk for _ in range(3)}
    rows.parked(parked_on="visits")
    support = as_("support")
    found = links(support)
    rows.failed()  # after the numbers were read
    assert listed(support, found["11 failed unexpectedly in the last hour"]) == unexpected
    assert listed(support, found["Failed in the last hour, and failed still 12"]) == hour
    assert listed(support, found["Failed in the last 24 hours, and failed still 14"]) == hour | day
    assert listed(support, found["3 parked"]) == parked
    assert listed(support, found["Live workers 2"]) == workers
    assert found["payments"] == "/admin/workflows/service/payments/change/"


# --- Who sees what, and what it costs -----------------------------------------------------------


def test_it_leads_nobody_where_they_may_not_go(as_: Login) -> None:
    rows.worker()
    open_circuit("payments")
    rows.parked()
    approver = as_("approver")
    said = sentence(approver)
    assert said.startswith("A service is down: a service has been down since ")
    assert said.endswith(", 1 parked.")
    shown = home(approver)
    assert "Live workers" not in shown
    assert "payments" not in shown, "not in an address, either"
    assert "standing health" not in home(as_("nobody"))


def test_what_it_reads_it_reads_by_an_index(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload, status, completed_at)
               SELECT gen_random_uuid(), 'parcel', '{}', CASE n % 50 WHEN 0 THEN 'PENDING' WHEN 1 THEN 'FAILED'
                      ELSE 'COMPLETE' END, CASE n % 50 WHEN 0 THEN NULL ELSE now() - n * interval '1 hour' END
                 FROM generate_series(1, 5000) n"""
        )
        cursor.execute(
            """INSERT INTO workflows_manualtask (workflow_id, wait_id, task_type, question, due_at, expires_at)
               SELECT id, id, 'review', 'May it go?', now() + interval '1 hour', now() + interval '1 day'
                 FROM workflows_workflow"""
        )
        cursor.execute("ANALYZE workflows_workflow, workflows_manualtask")
    support, asked = as_("support"), list[str]()
    fetch_all, raw = statements.fetch_all, connection.connection

    def note(sql: str, parameters: Any) -> Any:
        asked.append(psycopg.ClientCursor(raw).mogrify(sql, parameters))
        return fetch_all(sql, parameters)

    monkeypatch.setattr(raw, "onramp_backend", None)  # as behind a pooler: no plan is kept
    for module in (statements, recent_failures):
        monkeypatch.setattr(module, "fetch_all", note)
    with CaptureQueriesContext(connection) as captured:
        home(support)
    asked += [query["sql"] for query in captured]
    for index, statement in (
        ("workflow_failures", "completed_at >="),
        ("workflow_begun", "WITH RECURSIVE of_begun"),
        ("workflow_fresh", "WITH RECURSIVE of_begun"),
        ("manual_task_due", '"due_at" <='),
    ):
        plans = []
        for sql in (each for each in asked if statement in each):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN {sql}")
                plans.append("\n".join(line for (line,) in cursor))
        assert any(index in plan for plan in plans), plans

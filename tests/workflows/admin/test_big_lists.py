"""The lists on tables that are not small: what the planner fell for, told by the pages that it reads, not by times.

To walk all rows from the newest on for a few old ones, to sort all that wait, or to compute of all rows what is shown
of fifty, is to read thousands of pages.
"""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from tests.plans import Plan, explained
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.test_paging import LIST, WORKERS
from workflows.health import bounded, failures, selecting
from workflows.models import Workflow
from workflows.models.xids import CurrentTransactionId

pytestmark = pytest.mark.slow

ROWS = 12_000
# Of one statement. The rows of the table are on more.
MOST = 1500
SOME_DAYS_AGO, MINUTE = timedelta(days=300), timedelta(minutes=1)


@pytest.fixture
def boss(as_: Login) -> Client:
    """Somebody who sees everything. Of each rare kind there are three rows, older than all the others."""
    long_ago = timezone.now() - SOME_DAYS_AGO
    for number in range(3):
        rows.workflow(workflow_type="rare", invisible_until=long_ago)
        failed = rows.failed(workflow_type="rare", completed_at=long_ago)
        rows.event(failed, "failed", at=long_ago, finished_xid=CurrentTransactionId())
        for make in (rows.running, rows.retrying, rows.parked, rows.compensating, rows.cancelled, rows.given_up):
            make()
        rows.open_task(rows.waiting(task=False), task_type="keeps_dying", due_at=long_ago)
        rows.worker(number)
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload, status, completed_at,
                                               invisible_until, waiting_for, parked_on, begun)
               SELECT gen_random_uuid(), 'parcel', %s,
                      CASE WHEN mod(n, 10) < 3 THEN 'FAILED' WHEN mod(n, 10) < 5 THEN 'PENDING' ELSE 'COMPLETE' END,
                      CASE WHEN mod(n, 10) < 3 THEN now() - interval '9 days' WHEN mod(n, 10) > 4 THEN now() END,
                      now() + CASE WHEN mod(n, 10) IN (3, 4) THEN 1 ELSE -1 END * interval '1 day',
                      CASE mod(n, 10) WHEN 3 THEN 'a letter' ELSE '' END,
                      CASE mod(n, 10) WHEN 4 THEN 'insurance' ELSE '' END, true
                 FROM generate_series(1, %s) n""",
            [json.dumps({"note": "x" * 900}), ROWS],
        )
        cursor.execute(
            """WITH asked AS (
                   INSERT INTO workflows_wait (workflow_id, name, waiting_for, deadline)
                   SELECT id, 'many', '', now() + interval '1 day' FROM workflows_workflow
                    WHERE waiting_for = 'a letter'
                   RETURNING id, workflow_id, deadline)
               INSERT INTO workflows_manualtask (workflow_id, wait_id, task_type, question, facts, expires_at, due_at)
               SELECT workflow_id, id, CASE WHEN mod(id, 2) = 0 THEN 'letter' ELSE 'parcel' END, repeat('x', 300), '[]',
                      deadline, CASE WHEN mod(id, 3) = 0 THEN now() + (60 + mod(id, 9)) * interval '1 minute' END
                 FROM asked"""
        )
        cursor.execute(
            """INSERT INTO workflows_attempt (workflow_id, number, worker, closed_at, steps)
               SELECT id, 100, 'host-a:1', now(), %s FROM workflows_workflow""",
            [json.dumps([{"step": "charge", "outcome": "ran", "ms": 1}] * 10)],
        )
        cursor.execute(
            """INSERT INTO workflows_event (workflow_id, kind, at, finished_xid)
               SELECT id, 'completed', now(), '3' FROM workflows_workflow"""
        )
        cursor.execute("ANALYZE workflows_workflow, workflows_manualtask, workflows_attempt, workflows_event")
    return as_("superuser")


def dear(client: Client, url: str, *, counted: bool = True) -> list[tuple[int, str]]:
    """The statements of a page that read more than they may."""
    plans: list[Plan] = []
    with explained(plans):
        response = client.get(url)
    assert response.status_code == 200, url
    assert response.context["cl"].result_list, url
    assert plans
    return [(pages, sql) for pages, sql in too_much(plans) if counted or "COUNT(" not in sql]


def too_much(plans: list[Plan]) -> list[tuple[int, str]]:
    read = [(plan.buffers - plan.of_accounts, plan.sql) for plan in plans]
    return [(pages, sql) for pages, sql in read if pages > MOST]


RARE = (
    "?workflow_type=rare",
    "?state=queued",
    "?state=running",
    "?state=retrying",
    "?state=compensating",
    "?state=cancelled",
    "?workflow_type=rare&state=failed",
    "?workflow_type=rare&state=queued",
    "?parked_on=payments",
    "?failed=2020-01-01T00:00:00.0Z/{ago}T23:59:59.0Z",
    "?ended=2020-01-01T00:00:00.0Z/{ago}T23:59:59.0Z",
)
NONE = (
    "?workflow_type=none",
    "?workflow_type=none&state=waiting",
    "?parked_on=nothing",
    "?failed=today",
    "?failed=2020-01-01T00:00:00.0Z/2020-01-02T00:00:00.0Z",
    "?ended=2020-01-01T00:00:00.0Z/2020-01-02T00:00:00.0Z",
    "?failed=today&workflow_type=rare",
    "?state=nonsense",
)
MANY = (
    "",
    "?state=complete",
    "?state=failed",
    "?state=waiting",
    "?state=parked",
    "?parked_on=insurance",
    "?workflow_type=parcel",
    "?order=oldest",
    "?state=complete&order=oldest",
    "?state=waiting&order=oldest",
    "?state=parked&order=oldest",
    "?state=failed&order=earliest",
    "?preset=unacknowledged&order=earliest",
)


def test_what_is_rare_and_old_is_found_without_reading_what_is_newer(boss: Client) -> None:
    ago = f"{timezone.now() - SOME_DAYS_AGO:%Y-%m-%d}"
    found = {query: dear(boss, LIST + query.format(ago=ago)) for query in RARE}
    assert {query: statements for query, statements in found.items() if statements} == {}


def test_what_is_rare_and_new_is_found_oldest_first_without_reading_what_is_older(boss: Client) -> None:
    rows.workflow(workflow_type="late")
    rows.failed(workflow_type="late")
    found = {query: dear(boss, f"{LIST}?{query}&order=oldest") for query in ("workflow_type=late", "state=queued")}
    found["failed"] = dear(boss, f"{LIST}?workflow_type=late&state=failed&order=earliest")
    assert {query: statements for query, statements in found.items() if statements} == {}


def test_what_failed_in_a_time_is_found_by_an_index_that_has_no_completions(boss: Client) -> None:
    plans: list[Plan] = []
    with explained(plans):
        found = failures.ends(timezone.now() - SOME_DAYS_AGO - MINUTE, timezone.now())
    assert (found.number, sum(found.workflows.values())) == (3, 3)
    assert "event_not_completed" in plans[0].indexes
    assert plans[0].buffers < 50


def test_what_is_queued_and_old_is_found_so_though_there_is_too_much_of_it_to_be_counted(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "COUNT_LIMIT", 2)
    assert dear(boss, f"{LIST}?state=queued") == []


def test_the_open_attempts_are_hashed_and_not_compared_with_each_row_that_is_parked(boss: Client) -> None:
    plan = Workflow.objects.in_state("parked").order_by().values("pk")[:10_001].explain()
    assert "hashed SubPlan" in plan, plan
    assert "Anti Join" not in plan, plan


def test_what_is_parked_on_several_services_is_counted_up_to_one_limit(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selecting, "COUNT_LIMIT", 2)
    for service in ("insurance", "payments"):
        for _ in range(3):
            rows.parked(parked_on=service)
    assert selecting.ids_of(selecting.arms_in_state(Workflow.objects.all(), "parked")).count() == 3


def test_that_there_is_none_is_found_out_without_reading_the_others(boss: Client) -> None:
    plans: list[Plan] = []
    with explained(plans):
        for query in NONE:
            assert not boss.get(LIST + query).context["cl"].result_list
    assert too_much(plans) == []


def test_a_deep_page_reads_no_more_than_the_first(boss: Client) -> None:
    middle = Workflow.objects.order_by("pk")[ROWS // 2].pk
    found = {}
    for query in MANY:
        boss.get(LIST + query)  # marks the dead rows of earlier tests, which an index may begin with
        for place in (f"after={middle}", f"before={middle}", "before=end"):
            deep = f"{LIST}{query or '?'}&{place}"
            found[deep] = dear(boss, deep, counted=False)
    assert {url: statements for url, statements in found.items() if statements} == {}


def test_what_a_worker_runs_is_found_among_the_open_attempts(boss: Client) -> None:
    """For one that runs nothing, too: all attempts are closed but three."""
    assert dear(boss, WORKERS) == []

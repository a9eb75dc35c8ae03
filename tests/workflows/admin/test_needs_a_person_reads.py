"""How much a page of what needs a person reads: by its indexes, and as much of a large table as of a small one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.workflows.admin.conftest import Login
from workflows.health import bounded
from workflows.health.needs_a_person import Item, Rank
from workflows.models import ManualTask

LIST = "/admin/needs-a-person/?"
PAGES = [
    *(LIST + query for query in ("", "kind=task", "kind=reversal", "kind=failed", "kind=given-up")),
    *(LIST + f"whose={whose}" for whose in ("all", "others", "mine", "teams", "unassigned")),
    *(LIST + query for query in ("whose=teams&kind=unclear", "whose=others&kind=task")),
    *(LIST + query for query in ("kind=overdue-wait", "kind=overdue-wait&whose=teams")),
    *(LIST + query for query in ("state=overdue&whose=all", "task_type=undo_in_doubt")),
]


def fill(number: int, *, assignee: int) -> None:
    """So many failed workflows, nearly all acknowledged, open tasks, and deferred steps that were given up, at many
    times.

    A tenth of the tasks is overdue; one in a thousand is of a rare type, or of a rare team, or somebody's.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"""TRUNCATE workflows_workflow, workflows_manualtask, workflows_followup, workflows_wait CASCADE;
               INSERT INTO workflows_workflow
                       (idempotency_key, workflow_type, payload, status, completed_at, acknowledged_failure)
                SELECT gen_random_uuid(), 'parcel', '{{}}', 'FAILED', at, CASE n % 20 WHEN 0 THEN NULL ELSE at END
                  FROM (SELECT n, now() - n * interval '1 s' AS at FROM generate_series(1, {number}) n) made;
               WITH made AS (
                   INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload)
                   SELECT gen_random_uuid(), 'parcel', '{{}}' FROM generate_series(1, {number}) n RETURNING id),
                   numbered AS (SELECT id, row_number() OVER (ORDER BY id) AS n FROM made)
               INSERT INTO workflows_manualtask
                       (workflow_id, wait_id, task_type, question, expires_at, created_at, due_at, team, assignee_id)
                SELECT id, -id, CASE n % 1000 WHEN 1 THEN 'undo_in_doubt' ELSE 'review' END, 'May it?',
                       now() + interval '1 day', now() - n * interval '1 s',
                       CASE n % 10 WHEN 3 THEN now() - n * interval '1 s' WHEN 4 THEN now() + interval '1 h' END,
                       CASE n % 1000 WHEN 2 THEN 'operations' ELSE '' END, CASE n % 1000 WHEN 5 THEN {assignee} END
                  FROM numbered;
               INSERT INTO workflows_wait (id, workflow_id, kind, name, waiting_for, deadline)
                SELECT wait_id, workflow_id, 'signal', 'undo:charge:1', '', expires_at FROM workflows_manualtask;
               WITH made AS (
                   INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload, waiting_for)
                   SELECT gen_random_uuid(), 'parcel', '{{}}', 'a word' FROM generate_series(1, {number}) RETURNING id)
               INSERT INTO workflows_wait (workflow_id, kind, name, waiting_for, deadline, due_at)
                SELECT id, 'signal', 'sent', 'a word', now() + interval '1 day', now() - id * interval '1 s' FROM made;
               WITH made AS (
                   INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload, status, completed_at)
                   SELECT gen_random_uuid(), 'parcel', '{{}}', 'COMPLETE', now()
                     FROM generate_series(1, {number}) n RETURNING id)
               INSERT INTO workflows_followup (workflow_id, step, queue, created_at)
                SELECT id, 'thank', 'default', now() - id * interval '1 s' FROM made;
               ANALYZE workflows_workflow; ANALYZE workflows_manualtask; ANALYZE workflows_followup;
               ANALYZE workflows_wait"""
        )


FILLED = {"workflows_workflow", "workflows_manualtask", "workflows_followup", "workflows_wait"}


def read(client: Client, url: str) -> list[dict[str, Any]]:
    """The plans of the statements about workflows that make one page of the list, as they were carried out."""
    with CaptureQueriesContext(connection) as queries:
        client.get(url)
    plans = []
    for sql in [query["sql"] for query in queries if 'FROM "workflows_' in query["sql"]]:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}")
            plans.append(cursor.fetchone()[0][0]["Plan"])
    return plans


def pages(plans: list[dict[str, Any]]) -> int:
    """How many pages of tables and indexes they read."""
    return sum(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] for plan in plans)


def scanned(plans: list[dict[str, Any]]) -> list[str]:
    """The tables that they read from end to end."""
    here = [plan["Relation Name"] for plan in plans if plan["Node Type"] == "Seq Scan"]
    return here + [table for plan in plans for table in scanned(plan.get("Plans", []))]


@pytest.mark.slow
def test_a_page_reads_as_much_of_a_large_table_as_of_a_small_one(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "COUNT_LIMIT", 100)  # what is counted costs as much as it is
    client = as_("operations")
    fill(10_000, assignee=User.objects.get().pk)
    halfway = timezone.now() - timedelta(seconds=5_000)
    behind = Item(Rank.DUE, halfway, source=0, pk=1)
    for url in PAGES:
        for place in ("", f"&after={behind}"):
            plans = read(client, url + place)
            # By other statistics of users the overdue thousand are read and sorted, three pages each. All: 30,000.
            assert pages(plans) < 5000, (url, place, plans)
            assert not {*scanned(plans)} & FILLED, (url, place)


@pytest.mark.slow
def test_of_what_others_have_claimed_only_as_many_are_checked_as_are_counted(
    as_: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "COUNT_LIMIT", 100)
    client, other = as_("superuser"), User.objects.create(username="other", is_staff=True, is_superuser=True)
    fill(5_000, assignee=other.pk)
    ManualTask.objects.annotate(n=F("pk") % 4).filter(n=0).update(assignee=other)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE workflows_manualtask")
    # To ask whether a claim still counts takes twenty pages: 26,000 for a quarter of the tasks.
    found = read(client, f"{LIST}whose=others&kind=task")
    assert max(pages([plan]) for plan in found) < 8000

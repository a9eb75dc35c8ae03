"""Each index of workflows is used by the query that its comment in the model names: the server counts its scans."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client

from tests.engine import worker
from tests.workflows.admin.conftest import Login
from workflows.engine import unknown_types
from workflows.engine.claim import COMPENSATION
from workflows.features.retention import purge
from workflows.features.trends import rollup
from workflows.models import Signal, State, Workflow
from workflows.signals import waking
from workflows.state import transitions

ROWS = 8_000


def fill() -> None:
    """Of each hundred workflows some are of each kind. What failed did so in no order: else any index of it will do."""
    with connection.cursor() as cursor:
        cursor.execute(
            """WITH made AS (
               INSERT INTO workflows_workflow (
                      idempotency_key, workflow_type, payload, linking_id, status, completed_at, cancelled_at,
                      acknowledged_failure, invisible_until, begun, compensating, retry_count, parked_on, waiting_for,
                      wake_on, expires_at, parent_id, parent_wait, child_key)
               SELECT gen_random_uuid(), CASE kind WHEN 1 THEN 'rare' ELSE 'parcel' END, %s,
                      CASE WHEN kind < 50 THEN 'acc' || mod(n, 9) END,
                      CASE WHEN kind < 3 OR kind > 79 THEN 'FAILED' WHEN kind < 12 THEN 'PENDING' ELSE 'COMPLETE' END,
                      CASE WHEN kind < 3 OR kind > 11 THEN now() - mod(n * 7919, 8009) * interval '1 minute' END,
                      CASE kind WHEN 2 THEN now() END,
                      CASE WHEN mod(n, 20) > 0 THEN now() - mod(n * 7919, 8009) * interval '1 minute' END,
                      now() + CASE kind WHEN 3 THEN -n ELSE n END * interval '1 second', kind > 3, kind = 4,
                      CASE kind WHEN 5 THEN 1 + mod(n / 100, 5) ELSE 0 END,
                      CASE kind WHEN 6 THEN 'payments' ELSE '' END,
                      CASE kind WHEN 6 THEN 'a service' WHEN 7 THEN 'a letter' WHEN 8 THEN 'children'
                           WHEN 9 THEN 'a release that knows the workflow type parcel' ELSE '' END,
                      CASE kind WHEN 7 THEN ARRAY['paid'] WHEN 8 THEN ARRAY['child:all'] ELSE '{}' END,
                      CASE kind WHEN 10 THEN now() + n * interval '1 hour' END,
                      CASE WHEN kind = 79 THEN 1 END, 'all', n
                 FROM (SELECT n, mod(n, 100) AS kind FROM generate_series(1, %s) n) made
               RETURNING id, waiting_for)
               INSERT INTO workflows_wait (workflow_id, kind, name, waiting_for, deadline)
               SELECT id, 'children', 'all', '', now() + interval '1 day' FROM made WHERE waiting_for = 'children'""",
            ['{"note": "' + "x" * 500 + '"}', ROWS],
        )
        cursor.execute("ANALYZE workflows_workflow, workflows_wait")


def scans() -> dict[str, int]:
    """How often this transaction has searched each index so far."""
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT relname, pg_stat_get_xact_numscans(indexrelid)
                 FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
                WHERE indrelid = 'workflows_workflow'::regclass"""
        )
        return dict(cursor.fetchall())


def listed(query: str) -> Callable[[Client], object]:
    return lambda client: client.get(f"/admin/workflows/workflow/?{query}")


NEEDED: dict[str, Callable[[Client], object]] = {
    "workflow_begun": lambda _: worker()._due.claim_next(),
    "workflow_fresh": lambda _: worker()._due.claim_next(),
    "workflow_lanes": lambda _: worker()._due.claim_next(),
    "workflow_compensating": lambda _: worker(only=COMPENSATION)._due.claim_next(),
    "workflow_expiring_asleep": lambda _: waking.wake_expired(),
    "workflow_of_type": listed("workflow_type=rare"),
    "workflow_queued": listed("state=queued"),
    "workflow_failed_newest": listed("state=failed"),
    "workflow_cancelled": listed("state=cancelled"),
    "workflow_is_waiting": listed("state=waiting"),
    "workflow_is_retrying": listed("state=retrying"),
    "workflow_is_parked": listed("state=parked"),
    "workflow_failures": listed("failed=today"),
    "workflow_failures_left": listed("preset=unacknowledged"),
    "workflow_children_pending": lambda _: waking.wake_parents(),
    "workflow_listening_asleep": lambda _: waking.wake_for(Signal.objects.get().pk),
    "workflow_unknown_type": lambda _: unknown_types.make_due("default"),
    "workflow_parked": lambda _: transitions.release_parked("payments", limit=1, over=timedelta(seconds=1)),
    "workflow_linking": lambda client: client.post("/admin/find/", {"q": "acc7"}),
    "workflow_request": lambda client: client.post("/admin/find/", {"q": "acc7"}),
    "workflow_to_empty": lambda _: purge.empty_old(),
    "workflow_to_delete": lambda _: purge.delete_old(),
    "workflow_entered": lambda _: [rollup.add_up(), rollup.add_up()],  # the first one is of all rows
}


def test_each_index_is_used_by_the_query_that_needs_it(as_: Login) -> None:
    client = as_("superuser")
    fill()
    Signal.objects.create(source="shop", dedupe_key="1", name="paid", linking_id="acc7", payload={})
    unused = []
    for index, what in NEEDED.items():
        before = scans()[index]
        what(client)
        if scans()[index] == before:
            unused.append(index)
    assert unused == []


def test_each_index_has_a_query_that_needs_it() -> None:
    assert {index.name for index in Workflow._meta.indexes} == set(NEEDED)


@pytest.mark.django_db(transaction=True)
def test_what_rests_is_counted_from_its_index_alone() -> None:
    fill()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE workflows_workflow")  # or no index knows that its rows are visible
    for state in (State.PARKED, State.WAITING, State.RETRYING):
        plan = Workflow.objects.in_state(state).order_by().values("pk")[:10_001].explain()
        assert f"Index Only Scan using workflow_is_{state} " in plan, plan

"""EXPIRE: a workflow that takes longer than its definition allows ends by itself, wherever it stands."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from tests import engine
from tests.clock import standing_still
from tests.engine import define, do_maintenance, submit, work, worker
from tests.plans import Plan, explained
from tests.workflows.cancelling import CHARGE, ask, nothing, reread
from workflows import operations
from workflows.models import Effect, Event, State, Workflow
from workflows.postgres.statements import execute
from workflows.signals import waking

pytestmark = engine.ENGINE


def overdue(**fields: Any) -> Workflow:
    workflow = submit(**fields)
    execute("UPDATE workflows_workflow SET expires_at = clock_timestamp() - interval '1 second'")
    return workflow


def test_one_that_waits_is_woken_when_its_time_is_over_and_undone() -> None:
    define([CHARGE, ask])
    workflow = work(submit())
    execute("UPDATE workflows_workflow SET expires_at = clock_timestamp() - interval '1 second'")
    this = worker()
    do_maintenance()
    assert this.process_next()
    workflow = reread(workflow)
    assert (workflow.state, workflow.current_step) == (State.COMPENSATING, "ask")
    assert this.process_next()
    assert (reread(workflow).state, Effect.objects.get(undo=False).state) == (State.FAILED, "undone")
    this._maintenance_at = float("-inf")
    do_maintenance()
    assert not this.process_next()


def test_one_of_a_type_that_this_release_does_not_know_is_left_for_the_next(ada: User) -> None:
    workflow = work(overdue(workflow_type="of the next release"))
    this = worker()
    do_maintenance()
    assert not this.process_next()
    assert reread(workflow).status == "PENDING"


def test_what_has_expired_is_found_by_its_index_whatever_waits() -> None:
    plans: list[Plan] = []
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload, invisible_until, expires_at)
               SELECT gen_random_uuid(), 'test', '{}', now() + n * interval '1 hour', now() + n * interval '1 hour'
                 FROM generate_series(1, 5000) n"""
        )
        cursor.execute("ANALYZE workflows_workflow")
    define([nothing])
    with explained(plans, which=lambda sql: True):
        assert waking.wake_expired().changed == 0
    (plan,) = plans
    assert plan.indexes[0].startswith("workflow_expiring")
    assert plan.buffers <= 10


def test_one_that_runs_ends_between_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = standing_still(monkeypatch, "workflows.engine.worker_boundary")

    def outlast(*, workflow: Workflow, context: Any) -> None:
        clock.now += 60

    define([outlast, nothing])
    workflow = submit()
    execute("UPDATE workflows_workflow SET expires_at = clock_timestamp() + interval '1 minute'")
    workflow = work(workflow)
    assert (workflow.last_error_code, workflow.current_step) == ("expired", "nothing")


def test_a_retry_has_all_of_its_time_again(ada: User) -> None:
    define([nothing], expires_after=timedelta(hours=1))
    workflow = work(overdue())
    operations.retry(workflow.pk, user=ada)
    workflow = reread(workflow)
    assert workflow.expires_at is not None
    assert timedelta(minutes=59) < workflow.expires_at - Event.objects.latest("id").at < timedelta(minutes=61)
    assert work(workflow).status == "COMPLETE"

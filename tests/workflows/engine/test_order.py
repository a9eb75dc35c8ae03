"""What has started goes before what has not, in three of four claims (docs/adr/0012)."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from tests import engine
from tests.engine import Context, define, submit, worker
from tests.workflows.cancelling import nothing
from workflows.errors import RetryableStepError
from workflows.models import Attempt, Workflow
from workflows.state import transitions

pytestmark = engine.ENGINE


def fail_once(*, workflow: Workflow, context: Context) -> None:
    if workflow.payload.get("fails") and workflow.retry_count == 0:
        raise RetryableStepError("Busy.", base_delay=0.05)


def taken() -> list[int]:
    """The ids of the workflows, in the order in which workers took them."""
    return list(Attempt.objects.order_by("id").values_list("workflow_id", flat=True))


def drain() -> None:
    this = worker()
    while this.process_next():
        pass


def test_three_of_four_claims_are_of_what_has_started() -> None:
    define([nothing])
    fresh = [submit().pk for _ in range(4)]
    begun = [submit(begun=True).pk for _ in range(9)]
    drain()
    assert taken() == [*begun[:3], fresh[0], *begun[3:6], fresh[1], *begun[6:], *fresh[2:]]


def test_what_has_started_is_taken_in_every_claim_when_nothing_else_is_due() -> None:
    define([nothing])
    begun = [submit(begun=True).pk for _ in range(9)]
    drain()
    assert taken() == begun


def test_a_retry_does_not_wait_behind_the_backlog() -> None:
    """It was the last one, with a back-off of 0.05 s: patients were charged, and enrolled hours later."""
    define([fail_once])
    first = submit({"fails": True})
    Workflow.objects.bulk_create(
        Workflow(workflow_type="test", idempotency_key=uuid.uuid4(), payload={}) for _ in range(30)
    )
    this = worker()
    assert this.process_next()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.1)")
    for _ in range(4):
        assert this.process_next()
    assert Workflow.objects.get(pk=first.pk).status == "COMPLETE"


def test_what_a_dead_worker_leaves_is_the_first_of_what_has_not_started() -> None:
    """A death decides nothing, and writes nothing: the row is due at once, since when it was due before."""
    define([nothing])
    left, begun, fresh = submit(), submit(begun=True), submit()
    Attempt.objects.create(workflow=left, number=1, worker="gone:1", outcome="killed", closed_at=Now())
    drain()
    assert taken()[1:] == [begun.pk, left.pk, fresh.pk]


def test_run_now_puts_it_before_the_backlog() -> None:
    define([nothing])
    workflow, fresh = submit(invisible_until=timezone.now() + timedelta(hours=1)), submit()
    assert transitions.make_due(workflow.pk)
    drain()
    assert taken() == [workflow.pk, fresh.pk]


@pytest.mark.parametrize("only", ["", "compensation"])
def test_whatever_is_due_a_claim_is_one_statement(only: str) -> None:
    define([nothing])
    this, looks = worker(only=only), []
    fresh, begun = submit(), submit(begun=True, compensating=True)

    def look(execute: Any, sql: str, *rest: Any) -> Any:
        looks.extend([sql] if "looked_at" in sql else [])
        return execute(sql, *rest)

    with connection.execute_wrapper(look):
        busy = [this.process_next(thorough=False) for _ in range(3)]
    assert (taken(), len(looks)) == ([begun.pk] if only else [begun.pk, fresh.pk], 3)
    assert busy == ([True, False, False] if only else [True, True, False])

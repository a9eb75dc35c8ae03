"""PACE: what is held begins nothing, what is paced begins so much, and what has begun goes on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from tests import engine
from tests.engine import another_connection, define, do_maintenance, submit, worker
from tests.workflows.cancelling import nothing
from workflows.engine.turns import Turns
from workflows.models import Attempt, Pace, Workflow
from workflows.postgres.statements import execute

pytestmark = engine.ENGINE


def limit(key: str, **fields: Any) -> None:
    Pace.objects.update_or_create(key=key, defaults=fields)


def hold(key: str, **other: Any) -> None:
    limit(key, held_until=timezone.now() + timedelta(hours=1), **other)


def taken() -> list[int]:
    """The ids of the workflows, in the order in which workers took them."""
    return list(Attempt.objects.order_by("id").values_list("workflow_id", flat=True))


@pytest.mark.parametrize("key", ["queue:default", "type:test"])
def test_of_what_is_held_nothing_begins_and_what_has_begun_goes_on(key: str) -> None:
    define([nothing])
    hold(key)
    submit()
    begun = submit(begun=True)
    worker().run(drain=True)
    assert taken() == [begun.pk]
    Pace.objects.update(held_until=timezone.now())
    worker().run(drain=True)
    assert len(taken()) == 2


def test_beside_a_type_that_is_held_others_begin() -> None:
    define([nothing])
    hold("type:another")
    hold("queue:another")
    submit(workflow_type="another")
    free = submit()
    worker().run(drain=True)
    assert taken() == [free.pk]


@pytest.mark.parametrize("is_host_gone", [True, False])
def test_what_lost_its_worker_goes_on_though_it_is_held(*, is_host_gone: bool) -> None:
    define([nothing])
    left, retried, _ = submit(), submit(), submit()
    Attempt.objects.create(workflow=left, number=1, worker="gone:1")
    execute(  # since it was opened
        """INSERT INTO workflows_attempt (workflow_id, number, worker, outcome, closed_at, closed_xid)
           SELECT %s, n, 'here:1', 'failed', now(), pg_current_xact_id() FROM generate_series(1, 1001) n""",
        [retried.pk],
    )
    if not is_host_gone:
        closed = "outcome = 'lost', closed_at = now(), closed_xid = pg_current_xact_id()"
        execute(f"UPDATE workflows_attempt SET {closed} WHERE workflow_id = %s", [left.pk])
    do_maintenance()
    assert not Workflow.objects.filter(begun=True).exists(), "nothing is held"
    hold("queue:default")
    do_maintenance()
    worker().run(drain=True)
    assert set(taken()[1002:]) == {left.pk}


def test_a_hold_is_in_force_for_a_worker_that_runs_already() -> None:
    define([nothing])
    this = worker()
    submit()
    assert this.process_next()
    hold("queue:default")
    this._due.lanes._read_at -= 1.0  # a second later
    submit()
    assert not this.process_next()


def test_turns_are_a_pace_apart_over_all_workers() -> None:
    limit("queue:default", per_second=0.5)
    assert Turns().has("queue:default", 0.5)
    first = Pace.objects.get().next_at
    assert first
    Pace.objects.update(next_at=F("next_at") - timedelta(seconds=1.5))  # it is to come in half a second
    later = Turns()
    assert not later.has("queue:default", 0.5)
    assert later.next_in()
    assert Pace.objects.get().next_at == first + timedelta(seconds=0.5)


def test_no_turn_is_taken_far_ahead_and_none_while_another_worker_takes_one() -> None:
    limit("queue:default", per_second=0.01)
    first, second = Turns(), Turns()
    assert first.has("queue:default", 0.01)
    assert not second.has("queue:default", 0.01)
    assert second.next_in() is None
    Pace.objects.update(next_at=None)
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_pace FOR NO KEY UPDATE")
        assert not Turns().has("queue:default", 0.01)


def test_a_clock_that_was_set_back_stops_nobody() -> None:
    limit("queue:default", per_second=1.0, next_at=timezone.now() + timedelta(hours=1))
    assert Turns().has("queue:default", 1.0)


@pytest.mark.parametrize("key", ["queue:default", "type:test"])
def test_at_a_pace_one_begins_with_each_turn(key: str) -> None:
    define([nothing])
    limit(key, per_second=0.01)
    for _ in range(3):
        submit()
    begun = submit(begun=True)
    this = worker()
    while this.process_next():
        pass
    assert len(taken()) == 2
    assert begun.pk in taken()
    assert Workflow.objects.filter(status="PENDING").count() == 2

"""PLACES: a service with a cap has so many calls at a time over all workers; what finds no place is parked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from tests import engine
from tests.engine import another_connection, define, do_maintenance, kinds, submit, work, worker
from tests.workflows.features.outages.services import Downstream
from workflows import timeouts
from workflows.definition import Step
from workflows.features.outages import calls, places
from workflows.models import Effect, Pace, Service, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.outages import call_to
from workflows.timeouts import StepTimeout

pytestmark = engine.ENGINE


@contextmanager
def taken(place: int, service: str = "programs") -> Iterator[None]:
    """Another worker makes a call."""
    with another_connection() as other:
        other.execute("SELECT pg_advisory_lock(hashtextextended(%s, %s))", [f"service:{service}", place])
        yield
        other.execute("SELECT pg_advisory_unlock_all()")  # a session ends some time after its client


def cap(at_once: int) -> None:
    Pace.objects.create(key="service:programs", at_once=at_once)


@pytest.mark.parametrize("options", [{"once": True}, {"best_effort": True}])
def test_a_call_that_finds_no_place_is_not_made_and_its_turn_comes(programs: Downstream, options: Any) -> None:
    define([Step(programs.step, **options)])
    cap(1)
    with taken(1):
        workflow = work(submit())
        assert (workflow.parked_on, workflow.retry_count, programs.calls) == ("programs", 0, [])
        assert kinds(workflow) == ["parked"]
        assert not Effect.objects.exclude(state="not_done").exists(), "nothing is in doubt"
    do_maintenance()
    assert work(workflow).status == "COMPLETE"
    assert programs.calls == [workflow.pk]


def test_a_place_lasts_as_long_as_the_call(programs: Downstream) -> None:
    during: list[int | None] = []

    def look(*, workflow: Workflow, context: Any) -> None:
        with call_to("programs"):
            during.append(places.left("programs"))

    define([look])
    cap(2)
    with taken(2):
        assert places.left("programs") == 1
        assert work(submit()).status == "COMPLETE"
        assert during == [0]
        assert places.left("programs") == 1
    assert places.left("programs") == 2
    assert places.left("another") is None


def test_a_timer_between_the_place_and_its_call_leaves_the_place(
    programs: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker held it for as long as it lived, and the service had a call less at a time."""

    @contextmanager
    def held_off() -> Iterator[None]:
        """The timer was held off, and comes as soon as it is not."""
        yield
        patched.setattr(calls, "held_off", timeouts.held_off)
        raise StepTimeout(1.0)

    define([programs.step])
    cap(1)
    with monkeypatch.context() as patched:
        patched.setattr(calls, "held_off", held_off)
        this, workflow = worker(), submit()
        assert this.process_next()
        workflow.refresh_from_db()
    assert (workflow.retry_count, programs.calls, places.left("programs")) == (1, [], 1)


def test_a_second_call_of_a_once_step_leaves_the_first_in_no_doubt(programs: Downstream) -> None:
    other = Downstream("rooms")

    def both(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        other.step(workflow=workflow, context=context)
        programs.call(workflow)
        return {}

    define([Step(both, once=True)])
    cap(1)
    with taken(1):
        assert work(submit()).status == "COMPLETE"


def test_an_undo_waits_for_its_turn_and_counts_no_failure(programs: Downstream) -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        raise ValueError

    define([Step(programs.step, once=True, undo=programs.undo), fail])
    this = worker()
    workflow = submit()
    assert this.process_next()
    cap(1)
    with taken(1):
        waits = work(workflow)
        assert (waits.parked_on, waits.compensating, programs.refunds) == ("programs", True, [])
    do_maintenance()
    assert work(waits).status == "FAILED"
    assert programs.refunds == [workflow.pk]


def test_as_many_are_released_as_there_are_places(programs: Downstream) -> None:
    define([Step(programs.step)])
    cap(3)
    with taken(1), taken(2), taken(3):
        for _ in range(5):
            work(submit())
    with taken(1):
        do_maintenance()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM workflows_workflow WHERE invisible_until < now() + interval '1 minute'")
        assert cursor.fetchone() == (2,)


def test_more_are_released_each_time_until_one_is_turned_away(
    programs: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls may be much shorter than the second between two release batches."""
    monkeypatch.setattr("workflows.features.outages.parking.LARGEST_BATCH", 8)
    define([Step(programs.step)])
    cap(1)
    with taken(1):
        for _ in range(40):
            work(submit())
    Workflow.objects.update(parked_at=ClockTimestamp() - timedelta(hours=1))

    def released(seconds_later: float) -> int:
        Service.objects.update(released_at=ClockTimestamp() - timedelta(seconds=seconds_later))
        do_maintenance()
        due = Workflow.objects.filter(status="PENDING", invisible_until__lt=ClockTimestamp() + timedelta(minutes=1))
        return due.update(invisible_until=ClockTimestamp())

    for number in (1, 2, 4, 8):
        assert released(2) == number
        worker().run(drain=True)
    assert released(2) == 8, "the largest"
    with taken(1):
        worker().run(drain=True)
    assert released(2) == 7
    worker().run(drain=True)
    assert released(120) == 1, "of a time long ago"

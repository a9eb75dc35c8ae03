"""What a worker takes next, and when it does its chores: by a clock that stands still until the test moves it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from tests import engine
from tests.clock import Clock
from tests.engine import define, no_sweep, submit, work, worker
from workflows import inbox
from workflows.models import Attempt, Workflow
from workflows.waits import wait_for_signal

pytestmark = engine.ENGINE


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in ("claim", "loop"):
        monkeypatch.setattr(f"workflows.worker.{module}.monotonic", clock)
    return clock


@pytest.fixture
def without_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server reads the table as it lies, and sorts: nothing is in order by itself."""
    options = "-c enable_indexscan=off -c enable_bitmapscan=off"
    given = connection.settings_dict.get("OPTIONS", {})
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {**given, "options": options})
    connection.close()


def nothing(*, workflow: Workflow, context: Any) -> None: ...


def taken() -> list[int]:
    return list(Attempt.objects.order_by("id").values_list("workflow_id", flat=True))


def is_done(workflow: Workflow) -> bool:
    return Workflow.objects.get(pk=workflow.pk).status == "COMPLETE"


@pytest.mark.parametrize("lying_in_order", [True, False])
def test_it_takes_them_in_the_order_of_their_due_times_and_of_their_ids(
    lying_in_order: bool, clock: Clock, without_an_index: None
) -> None:
    """With the clock standing still, the watermark alone decides: no full look comes in between."""
    define([nothing])
    first = timezone.now() - timedelta(minutes=1)
    later = submit(invisible_until=first + timedelta(seconds=1))
    due_at_once = [submit(invisible_until=first) for _ in range(4)]
    if not lying_in_order:
        Workflow.objects.filter(pk=due_at_once[0].pk).update(tenant="moved to the end of the table")
    this = worker()
    while this.process_next():
        pass
    connection.close()
    assert taken() == [*(each.pk for each in due_at_once), later.pk]


def test_it_looks_from_the_oldest_due_row_four_times_a_second_and_not_more_often(clock: Clock) -> None:
    """Each full look pays for all that the drain has left dead; what was woken waits for the next one."""
    define([nothing])
    for _ in range(4):
        submit()
    woken, this = submit(invisible_until=timezone.now() + timedelta(hours=1)), worker()
    assert this.process_next()
    Workflow.objects.filter(pk=woken.pk).update(invisible_until="2020-01-01T00:00:00Z")
    clock.now += 0.24
    assert this.process_next()
    assert not is_done(woken), "the watermark is past it"
    clock.now += 0.02
    assert this.process_next()
    assert is_done(woken), "before the two that are left"


def test_what_refers_to_a_row_need_not_wait_for_its_claim() -> None:
    """A foreign key's check, of a table of yours say, locks the row as here: by another connection, in a step."""
    referred: list[Any] = []

    def refer(*, workflow: Workflow, context: Any) -> None:
        with engine.another_connection() as other:
            sql = "SELECT id FROM workflows_workflow WHERE id = %s FOR KEY SHARE NOWAIT"
            referred.append(other.execute(sql, [workflow.pk]).fetchone())

    define([refer])
    workflow = work(submit())
    assert (workflow.status, referred) == ("COMPLETE", [(workflow.pk,)])


# --- The chores -----------------------------------------------------------------------------------------


def await_paid(*, workflow: Workflow, context: Any) -> None:
    wait_for_signal(workflow, "payment", "paid", timeout=timedelta(hours=1))


@pytest.fixture
def asleep(engine: None) -> Workflow:
    define([await_paid])
    return work(submit())


def tell_and_wake_nobody(workflow: Workflow) -> None:
    """As a sender that dies between its two statements."""
    inbox.store(source="shop", dedupe_key=str(workflow.pk), name="paid", workflow_id=workflow.pk, payload={})


def test_one_worker_of_all_does_the_chores(asleep: Workflow) -> None:
    tell_and_wake_nobody(asleep)
    with no_sweep():
        worker().run_chores()
        assert worker().process_next() is False
    worker().run_chores()
    assert worker().process_next() is True


def test_the_chores_are_done_once_a_second(asleep: Workflow, clock: Clock) -> None:
    this = worker()
    this.run_chores()
    tell_and_wake_nobody(asleep)
    clock.now += 0.9
    this.run_chores()
    assert this.process_next() is False
    clock.now += 0.2
    this.run_chores()
    assert this.process_next() is True


def test_after_a_sweep_it_rests_twenty_times_as_long_as_that_took(
    asleep: Workflow, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With very many signals that nobody has used, each look at all of them takes long."""
    sweep = inbox.sweep

    def sweep_for_a_second() -> int:
        clock.now += 1
        return sweep()

    monkeypatch.setattr(inbox, "sweep", sweep_for_a_second)
    this = worker()
    this.run_chores()
    tell_and_wake_nobody(asleep)
    clock.now += 19.9
    this.run_chores()
    assert this.process_next() is False
    clock.now += 1.1
    this.run_chores()
    assert this.process_next() is True

"""Who wakes a workflow, and whom nobody wakes: each condition of the three wakers, one by one, and no sweep to help.

Woken for nothing, a workflow runs from its first step on, over and over; not woken, it sleeps to its deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from tests import engine
from tests.engine import define, kinds, make_due, submit, sweep, work, worker
from tests.workflows.cancelling import nothing
from tests.workflows.waits.approvals import boss
from workflows import operations
from workflows.definition import Step
from workflows.errors import RetryableStepError, StepError
from workflows.models import Signal, Wait, Workflow
from workflows.signals import store, waking
from workflows.waits import Child, wait_for_children, wait_for_signal

pytestmark = engine.ENGINE

HOUR = timedelta(hours=1)
LINKED = pytest.mark.parametrize("linked", [False, True], ids=["to a workflow", "by linking id"])


def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {}


def await_paid(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": wait_for_signal(workflow, "payment", "paid", timeout=HOUR).payload["n"]}


def await_paid_twice(*, workflow: Workflow, context: Any) -> None:
    for name in ("first", "second"):
        wait_for_signal(workflow, name, "paid", timeout=HOUR)


def await_children(*, workflow: Workflow, context: Any) -> None:
    if workflow.parent_id is None:
        wait_for_children(workflow, "parcels", [Child("test", {}), Child("test", {})], timeout=HOUR)


def tell(workflow: Workflow, name: str = "paid", *, linked: bool = False, payload: Any = None) -> Signal:
    """Store a signal, and wake nobody: as a sender that dies between its two statements."""
    address: dict[str, Any] = {"linking_id": workflow.linking_id} if linked else {"workflow_id": workflow.pk}
    key = f"{name}:{Signal.objects.count()}"
    assert store.store(source="shop", dedupe_key=key, name=name, payload=payload or {"n": 7}, **address)
    return Signal.objects.get(dedupe_key=key)


def woken(workflow: Workflow) -> list[int]:
    """How many each of the wakers wakes: the worker after a suspension, the sender of each signal, and maintenance."""
    by_sender = sum(waking.wake_for(pk) for pk in Signal.objects.values_list("pk", flat=True))
    return [int(waking.wake(workflow.pk)), by_sender, sweep()]


def asleep(steps: Sequence[Any], **fields: Any) -> Workflow:
    define(steps)
    workflow = work(submit(**fields))
    assert workflow.invisible_until > timezone.now()
    return workflow


# --- The sender ---------------------------------------------------------------------------------------


def test_the_signal_is_committed_before_anybody_is_woken() -> None:
    """The worker that takes the row up at once must find it: else it sleeps again, and nobody wakes it any more."""

    def names() -> list[Any]:
        with engine.another_connection() as other:
            return other.execute("SELECT name FROM workflows_signal").fetchall()

    workflow = asleep([await_paid])
    with engine.at("SET invisible_until = least", names) as seen:
        store.send(source="shop", dedupe_key="1", name="paid", payload={"n": 7}, workflow_id=workflow.pk)
    assert seen == [[("paid",)]]


def test_whoever_requests_a_cancellation_wakes_the_workflow_that_its_worker_has_let_go_of() -> None:
    """Held when it was to be cancelled here and now, and let go, asleep, before the request was stored."""
    workflow = asleep([await_paid])
    with engine.another_connection() as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT 1 FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [workflow.pk])

        def let_go(execute: Any, sql: str, *rest: Any) -> Any:
            try:
                return execute(sql, *rest)
            finally:
                if "NOWAIT" in sql and holder.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    holder.execute("ROLLBACK")

        with connection.execute_wrapper(let_go):
            told = operations.cancel(workflow.pk, user=boss(), reason="By phone.")
    assert told.startswith("It is running")
    assert work(workflow).cancelled_at


# --- What is woken ------------------------------------------------------------------------------------


def test_what_is_woken_goes_before_the_backlog_and_is_due_since_then() -> None:
    """People read since when it has been due: that it goes first is said by another column."""
    workflow = asleep([await_paid])
    fresh = submit()
    tell(workflow)
    before = timezone.now()
    assert waking.wake(workflow.pk)
    assert before <= Workflow.objects.get(pk=workflow.pk).invisible_until <= timezone.now()
    assert work(workflow).status == "COMPLETE"
    assert not fresh.attempts.exists()  # type: ignore[attr-defined]


def test_what_is_due_already_goes_before_the_backlog_when_it_is_woken_and_stays_due_since_then() -> None:
    """Queued, and not started: such as a child that is to be cancelled with its parent."""
    define([nothing])
    first, workflow, by_maintenance = submit(), submit(), submit()
    for each in (workflow, by_maintenance):
        tell(each, "cancel", payload={"by": "ada", "reason": ""})
    assert waking.wake(workflow.pk)
    assert not waking.wake(workflow.pk)
    assert (sweep(), sweep()) == (1, 0), "each once"
    for each in (workflow, by_maintenance):
        after = work(each)
        assert (after.status, after.invisible_until) == ("FAILED", each.invisible_until)
    assert not first.attempts.exists()  # type: ignore[attr-defined]


# --- Whom nobody wakes --------------------------------------------------------------------------------


@LINKED
@pytest.mark.parametrize(
    "fields", [{"status": "FAILED", "completed_at": Now()}, {"invisible_until": Now()}], ids=["ended", "due"]
)
def test_nobody_wakes_what_has_ended_or_is_due(fields: dict[str, Any], linked: bool) -> None:
    """The row of what is due would be written again at each look, and leave a dead one behind."""
    workflow = asleep([await_paid], linking_id="acc")
    tell(workflow, linked=linked)
    Workflow.objects.filter(pk=workflow.pk).update(**fields)
    assert woken(workflow) == [0, 0, 0]


@LINKED
def test_nobody_wakes_for_a_signal_that_has_been_used(linked: bool) -> None:
    workflow = asleep([await_paid_twice], linking_id="acc")
    tell(workflow, linked=linked)
    make_due(workflow)
    assert work(workflow).invisible_until > timezone.now(), "nor has its worker"
    assert Wait.objects.filter(outcome="received").count() == 1
    assert woken(workflow) == [0, 0, 0]
    tell(workflow, linked=linked)
    assert 1 in woken(workflow)


def test_nobody_wakes_what_is_being_undone_for_a_request_to_cancel() -> None:
    def undo(*, workflow: Workflow, context: Any, effect: Any) -> None:
        raise RetryableStepError("Busy.", base_delay=300)

    def fail(*, workflow: Workflow, context: Any) -> None:
        raise StepError("No.")

    define([Step(call, once=True, undo=undo), fail])
    workflow = work(work(submit(expires_at=timezone.now() + HOUR)))
    Workflow.objects.update(expires_at=timezone.now() - HOUR)
    tell(workflow, "cancel")
    assert (workflow.compensating, woken(workflow)) == (True, [0, 0, 0])
    assert waking.wake_expired().changed == 0


def test_a_request_that_was_retracted_wakes_nobody_and_cancels_nothing() -> None:
    workflow = asleep([Step(call, once=True), await_paid])
    request = tell(workflow, "cancel", payload={"by": "ada", "reason": ""})
    store.close_cancellations(workflow.pk)
    request.refresh_from_db()
    assert request.closed_at
    assert woken(workflow) == [0, 0, 0]
    define([Step(call, once=True, name="another"), nothing], retired=["call"])
    make_due(workflow)
    assert work(workflow).status == "COMPLETE"


def test_what_it_listened_to_before_does_not_wake_its_retry() -> None:
    """The signal that it waited for came while it ran, and is for a step that comes later now."""

    def fail(*, workflow: Workflow, context: Any) -> None:
        raise RetryableStepError("Busy.", base_delay=300)

    workflow = asleep([await_paid])
    define([fail, await_paid])
    make_due(workflow)
    workflow = work(workflow)
    tell(workflow)
    assert woken(workflow) == [0, 0, 0]


# --- Parents ------------------------------------------------------------------------------------------


def ends_of_children() -> int:
    return Signal.objects.filter(name="child:parcels").count()


def test_a_parent_is_told_by_its_last_child_alone() -> None:
    parent = asleep([await_children])
    this = worker()
    assert this.process_next()
    assert ends_of_children() == 0
    assert this.process_next()
    assert ends_of_children() == 1
    assert work(parent).status == "COMPLETE"


@pytest.mark.parametrize("over", [{"outcome": "expired"}, {"superseded": True}], ids=["over", "superseded"])
def test_a_parent_is_not_told_of_the_children_of_a_wait_that_is_over(over: dict[str, Any]) -> None:
    parent = asleep([await_children])
    Wait.objects.update(**over)
    this = worker()
    assert [this.process_next(), this.process_next()] == [True, True]
    assert (ends_of_children(), woken(parent)) == (0, [0, 0, 0])


def test_the_sweep_wakes_no_parent_that_waits_for_something_else() -> None:
    """It has met its wait for children, and retries a step before it now; the children have ended meanwhile."""

    def fail_for_the_parent(*, workflow: Workflow, context: Any) -> None:
        if workflow.parent_id is None:
            raise RetryableStepError("Busy.", base_delay=300)

    parent = asleep([await_children])
    define([fail_for_the_parent, await_children])
    make_due(parent)
    assert work(parent).retry_count == 1
    this = worker()
    assert [this.process_next(), this.process_next()] == [True, True]
    assert woken(parent) == [0, 0, 0]


def test_a_child_that_is_being_undone_is_not_asked_to_cancel() -> None:
    parent = asleep([await_children])
    first, second = parent.children.order_by("id")
    Workflow.objects.filter(pk=first.pk).update(compensating=True)
    operations.cancel(parent.pk, user=boss(), reason="By phone.")
    assert list(Signal.objects.filter(name="cancel").values_list("workflow", flat=True)) == [second.pk]


def test_a_workflow_that_has_ended_waits_for_no_children_any_more() -> None:
    """Else each sweep would look, for ever, whether they have ended."""
    parent = asleep([await_children])
    operations.cancel(parent.pk, user=boss(), reason="By phone.")
    assert Wait.objects.get().superseded


# --- maintenance ---------------------------------------------------------------------------------------


def test_maintenance_leaves_what_a_workflow_under_way_has_been_told() -> None:
    workflow = asleep([await_paid])
    signal = tell(workflow, "shipped")
    store.ignore_late_signals()
    signal.refresh_from_db()
    assert (signal.closed_at, signal.ignored) == (None, False)


def test_a_request_that_came_as_the_workflow_failed_by_itself_is_told_to_have_come_too_late() -> None:
    undone = submit(compensating=True, invisible_until=timezone.now() + HOUR)
    ended = submit(status="COMPLETE", completed_at=timezone.now())
    other = submit(invisible_until=timezone.now() + HOUR)
    requests = [tell(each, "cancel", payload={"by": "ada"}) for each in (undone, ended, other)]
    store.ignore_late_signals()
    assert [kinds(each) for each in (undone, ended, other)] == [["cancel_too_late"], ["cancel_too_late"], []]
    assert [Signal.objects.get(pk=request.pk).ignored for request in requests] == [True, True, False]

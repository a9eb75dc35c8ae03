"""A signal against a worker that suspends, or backs off: every order of their statements, on two real connections.

The sweep is kept away: what is not woken by the sender or by the worker itself stays asleep, and fails the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import combinations_with_replacement
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections, transaction
from django.utils import timezone

from tests import engine
from tests.engine import Context, define, do_maintenance, elsewhere, no_maintenance, submit, work, worker
from workflows import operations
from workflows.errors import RetryableStepError
from workflows.models import Attempt, Signal, Wait, Workflow
from workflows.signals import store, waking
from workflows.waits import Child, wait_for_children, wait_for_signal

pytestmark = engine.ENGINE

# Where the worker is, by the statement that it has just sent, or is about to: (statement, connection, before it).
OPENS_ITS_ATTEMPT = ("INSERT INTO workflows_attempt", "attempt_log", True)
LOOKS_FOR_THE_SIGNAL = ("WITH candidate AS", "attempt_log", False)
DECIDES = ('UPDATE "workflows_workflow"', "default", False)
HAS_COMMITTED = ("UPDATE workflows_workflow SET invisible_until = least", "default", True)
HAS_LOOKED_AGAIN = ("UPDATE workflows_workflow SET invisible_until = least", "default", False)

SUSPENDING = [OPENS_ITS_ATTEMPT, LOOKS_FOR_THE_SIGNAL, DECIDES, HAS_COMMITTED, HAS_LOOKED_AGAIN]
BACKING_OFF = [
    OPENS_ITS_ATTEMPT,
    ("RETURNING id, number", "attempt_log", False),
    DECIDES,
    HAS_COMMITTED,
    HAS_LOOKED_AGAIN,
]

# Of the sender's three (insert, commit, wake) any may come at any of the worker's places, in this order: 35 orders.
ORDERS = list(combinations_with_replacement(range(5), 3))


@pytest.fixture(autouse=True)
def nowhere_yet() -> None:
    met.clear()


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """Another one, with connections of its own."""
    with ThreadPoolExecutor(1) as thread:
        yield thread
        thread.submit(connections.close_all).result(timeout=30)


LINKED = pytest.mark.parametrize("linked", [False, True], ids=["to a workflow", "by linking id"])


def await_paid(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": wait_for_signal(workflow, "payment", "paid", timeout=timedelta(hours=1)).payload["n"]}


def fail_until_told(*, workflow: Workflow, context: Any) -> None:
    if workflow.retry_count == 0:
        raise RetryableStepError("Not yet.", wake_on="paid", base_delay=300)


class Sender:
    """Sends one signal in three steps, each when it is told to, on a connection of its own."""

    def __init__(self, thread: ThreadPoolExecutor, linking_id: str | None, workflow_id: int | None) -> None:
        self.address: dict[str, Any] = {"linking_id": linking_id, "workflow_id": workflow_id}
        self.steps: list[Callable[[], object]] = [self.insert, self.commit, self.wake]
        self.thread = thread

    def insert(self) -> None:
        connection.set_autocommit(False)
        stored = store.store(source="shop", dedupe_key=str(uuid4()), name="paid", payload={"n": 7}, **self.address)
        assert stored
        self.signal_id = stored

    def commit(self) -> None:
        connection.commit()
        connection.set_autocommit(True)

    def wake(self) -> None:
        waking.wake_for(self.signal_id)

    def go_on(self, steps: int) -> None:
        """Make that many further steps; come back when they are done."""
        for _ in range(steps):
            done: Future[object] = self.thread.submit(self.steps.pop(0))
            done.result(timeout=30)


# The places where a worker has been: a statement that is worded again would be met by none, and no order be forced.
met: set[tuple[str, str, bool]] = set()


@contextmanager
def at(place: tuple[str, str, bool], do: Callable[[], None]) -> Iterator[None]:
    """Do it when the worker is there, once."""
    statement, alias, before = place
    left = [do]

    def look(execute: Any, sql: str, *rest: Any) -> Any:
        is_now = statement in sql and left
        if is_now:
            met.add(place)
        if is_now and before:
            left.pop()()
        result = execute(sql, *rest)
        if is_now and not before:
            left.pop()()
        return result

    with connections[alias].execute_wrapper(look):
        yield
    for each in left:  # it has never been there: a worker that completes does not look again
        each()


def run_while_it_is_sent(sender: Sender, places: list[tuple[str, str, bool]], order: tuple[int, ...]) -> None:
    """One attempt, with the sender's steps at these places of it."""
    with ExitStack() as stack:
        for number, place in reversed(list(enumerate(places))):  # what is left over is done from the inside out
            if steps := order.count(number):
                stack.enter_context(at(place, lambda steps=steps: sender.go_on(steps)))  # type: ignore[misc]
        assert worker().process_next()
    assert not sender.steps


def send_to(thread: ThreadPoolExecutor, workflow: Workflow) -> Sender:
    return Sender(thread, "acc", None) if workflow.linking_id else Sender(thread, None, workflow.pk)


@LINKED
def test_a_signal_is_found_once_whatever_the_order_of_the_sender_and_the_suspending_worker(
    linked: bool, thread: ThreadPoolExecutor
) -> None:
    define([await_paid])
    for order in ORDERS:
        workflow = submit(linking_id="acc" if linked else None)
        run_while_it_is_sent(send_to(thread, workflow), SUSPENDING, order)
        runs = 1
        while worker().process_next():
            runs += 1
        workflow.refresh_from_db()
        assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 7), f"lost with {order}"
        assert runs <= 2, f"it looped with {order}"
        assert Wait.objects.get(workflow=workflow).signal == Signal.objects.latest("id")
        Signal.objects.all().delete()  # or the next workflow of the linking id would be told by it, too
    assert met >= set(SUSPENDING)


@LINKED
def test_a_signal_that_the_attempt_has_not_seen_cuts_its_back_off_short_and_one_that_it_has_seen_does_not(
    linked: bool, thread: ThreadPoolExecutor
) -> None:
    define([fail_until_told])
    for order in ORDERS:
        workflow = submit(linking_id="acc" if linked else None)
        run_while_it_is_sent(send_to(thread, workflow), BACKING_OFF, order)
        workflow.refresh_from_db()
        seen = order[1] == 0  # committed before the attempt was opened
        assert (workflow.invisible_until <= timezone.now()) is not seen, f"with {order}"
        while worker().process_next():
            pass
        Workflow.objects.filter(pk=workflow.pk).update(status="COMPLETE")
        Signal.objects.all().delete()
    assert met >= set(BACKING_OFF)


@LINKED
def test_a_sender_that_was_killed_between_its_two_statements_has_lost_nothing(
    linked: bool, thread: ThreadPoolExecutor
) -> None:
    define([await_paid])
    workflow = work(submit(linking_id="acc" if linked else None))
    send_to(thread, workflow).go_on(2)
    this = worker()
    assert this.process_next() is False
    do_maintenance()
    assert work(workflow).status == "COMPLETE"


@LINKED
def test_an_operators_transaction_that_held_the_row_just_then_has_lost_nothing(linked: bool) -> None:
    define([await_paid])
    workflow = work(submit(linking_id="acc"))
    this = worker()
    with engine.another_connection() as operator, operator.transaction():
        operator.execute("SELECT 1 FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [workflow.pk])
        address = {"linking_id": "acc"} if linked else {"workflow_id": workflow.pk}
        store.send(source="shop", dedupe_key="1", name="paid", payload={"n": 7}, **address)  # type: ignore[arg-type]
        do_maintenance()
        assert this.process_next() is False
    engine.elsewhere(connections.close_all)
    do_maintenance()
    assert work(workflow).status == "COMPLETE"


def test_the_workers_own_look_is_what_finds_it_when_the_sender_came_too_early(thread: ThreadPoolExecutor) -> None:
    """The very order that this look is for; and with nobody to sweep."""
    define([await_paid])
    workflow = submit()
    with no_maintenance():
        run_while_it_is_sent(send_to(thread, workflow), SUSPENDING, (2, 2, 2))
        do_maintenance()
        assert work(workflow).status == "COMPLETE"


# --- A signal for a workflow that has failed, and is retried just then --------------------------------


def fail_at_first(*, workflow: Workflow, context: Any) -> None:
    if Attempt.objects.filter(workflow=workflow.pk).count() == 1:
        raise ValueError


def retry(workflow: Workflow, user: User) -> None:
    """It may be refused for a moment."""
    with suppress(operations.WorkflowBusy):
        operations.retry(workflow.pk, user=user)


def completes(workflow: Workflow, user: User) -> bool:
    """Whether it does, retried unless it has been."""
    workflow.refresh_from_db()
    if workflow.status == "FAILED":
        operations.retry(workflow.pk, user=user)
    do_maintenance()
    return work(workflow).status == "COMPLETE"


@pytest.fixture
def boss(engine: None) -> User:
    return User.objects.create(username="boss", is_superuser=True)


def test_a_signal_that_is_stored_while_its_workflow_is_retried_is_heeded(boss: User) -> None:
    define([fail_at_first, await_paid])
    workflow = work(submit())
    with transaction.atomic():
        store.store(source="shop", dedupe_key="1", name="paid", workflow_id=workflow.pk, payload={"n": 7})
        elsewhere(lambda: [retry(workflow, boss)])
    assert completes(workflow, boss)


def test_a_signal_that_maintenance_puts_aside_while_its_workflow_is_retried_is_heeded(boss: User) -> None:
    define([fail_at_first, await_paid])
    workflow = submit()
    store.send(source="shop", dedupe_key="1", name="paid", workflow_id=workflow.pk, payload={"n": 7})
    work(workflow)
    Signal.objects.update(closed_at=None, ignored=False)  # it came in the moment of the end
    with engine.another_connection() as other:
        with other.transaction():
            other.execute("SELECT FROM workflows_signal FOR UPDATE")  # maintenance is long at it
            maintenance = Thread(target=lambda: (store.ignore_late_signals(), connections.close_all()))
            maintenance.start()
            engine.until_blocked()
            retry(workflow, boss)
        maintenance.join()
    assert completes(workflow, boss)


# --- Children that end at once ------------------------------------------------------------------------


def join(*, workflow: Workflow, context: Context) -> None:
    if workflow.parent_id is None:
        wait_for_children(workflow, "both", [Child("test", {}), Child("test", {})], timeout=timedelta(hours=1))


@contextmanager
def before_telling(do: Callable[[], None]) -> Iterator[None]:
    """`do` it when the worker has committed, and not yet looked whether it was the last."""
    usual, left = store.notify_parent, [do]

    def tell(child_id: int) -> None:
        if left:
            left.pop()()
        usual(child_id)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "notify_parent", tell)
        yield


@pytest.mark.parametrize("moment", [before_telling, partial(at, DECIDES)], ids=["both have committed", "neither has"])
def test_the_one_that_looks_second_sees_both(moment: Callable[..., AbstractContextManager[None]]) -> None:
    define([join])
    parent = work(submit())
    with moment(lambda: elsewhere(lambda: worker().process_next())):
        assert worker().process_next()
    assert work(parent).status == "COMPLETE"
    assert worker().process_next() is False, "woken once"

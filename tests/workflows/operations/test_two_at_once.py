"""An operation while a worker holds the row, or somebody else decides: what waits, what does not, and who wins."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from tests import engine
from tests.engine import sweep
from tests.workflows import rows
from workflows import operations
from workflows.errors import NotAllowed
from workflows.models import Event, ManualTask, Signal, Workflow
from workflows.signals import waking


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run each call in a thread and on a connection of its own, from the same moment; results or errors, in order."""
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def run(index: int, call: Callable[[], Any]) -> None:
        try:
            connection.ensure_connection()
            barrier.wait(timeout=10)
            results[index] = call()
        except Exception as error:
            results[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    return results


class Held:
    """A workflow's row held by another connection, as a worker holds it."""

    def __init__(self, row: Workflow) -> None:
        self.row, self.held, self.done = row, threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._hold)

    def _hold(self) -> None:
        try:
            with transaction.atomic():
                Workflow.objects.select_for_update(no_key=True).get(pk=self.row.pk)
                self.held.set()
                self.done.wait(timeout=30)
        finally:
            connection.close()

    def __enter__(self) -> None:
        self.thread.start()
        assert self.held.wait(timeout=10)

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join(timeout=10)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("operation", [operations.retry, operations.run_now])
def test_a_row_that_a_worker_holds_is_refused_without_waiting(boss: User, operation: Callable[..., None]) -> None:
    row = rows.failed()
    with Held(row):
        asked = timezone.now()
        with pytest.raises(NotAllowed, match="It is running right now; try again in a moment"):
            operation(row.pk, user=boss)
        assert timezone.now() - asked < timedelta(seconds=1)
    assert not Event.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_decision_does_not_wait_for_the_worker_that_holds_the_row(boss: User) -> None:
    row = rows.waiting()
    task = ManualTask.objects.get()
    with Held(row):
        asked = timezone.now()
        operations.approve(task.pk, user=boss)
        assert timezone.now() - asked < timedelta(seconds=1)
        assert Signal.objects.get().name == task.signal_name
        assert Workflow.objects.get(pk=row.pk).invisible_until == row.invisible_until  # the holder looks itself
    assert sweep() == 1


@pytest.mark.django_db(transaction=True)
def test_the_wake_up_comes_after_the_commit_of_the_signal(boss: User, monkeypatch: pytest.MonkeyPatch) -> None:
    rows.waiting()
    seen: list[Any] = []

    def wake(workflow_id: int) -> bool:
        seen.extend(at_once(lambda: Signal.objects.filter(workflow=workflow_id).count()))
        return True

    monkeypatch.setattr(waking, "wake", wake)
    operations.approve(ManualTask.objects.get().pk, user=boss)
    assert seen == [1]


@pytest.mark.django_db(transaction=True)
def test_a_decision_that_waited_for_the_expiry_sees_it(boss: User) -> None:
    """Forced: the expiry's update is uncommitted when the decision's starts, and commits while it waits."""
    task = rows.open_task(rows.waiting(task=False))
    waiting = threading.Event()
    refusals: list[Exception] = []

    def decide() -> None:
        try:
            waiting.set()
            operations.approve(task.pk, user=boss)
        except NotAllowed as refusal:
            refusals.append(refusal)
        finally:
            connection.close()

    thread = threading.Thread(target=decide)
    with transaction.atomic():
        ManualTask.objects.filter(pk=task.pk).update(state="expired", expires_at=F("created_at"))
        thread.start()
        waiting.wait(timeout=10)
        engine.until_blocked()
    thread.join(timeout=10)
    assert "It expired at" in str(refusals[0])
    assert not Signal.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_decision_is_stored_though_the_database_fails_at_the_wake_up(boss: User) -> None:
    row = rows.waiting()
    task = ManualTask.objects.get()

    def end_the_connection_before_the_wake_up(execute: Any, sql: str, *rest: Any) -> Any:
        if "SKIP LOCKED" in sql:
            assert connection.connection is not None
            with engine.another_connection() as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.connection.info.backend_pid])
        return execute(sql, *rest)

    with connection.execute_wrapper(end_the_connection_before_the_wake_up):
        operations.approve(task.pk, user=boss)
    task.refresh_from_db()
    assert task.state == "approved"
    row.refresh_from_db()
    assert row.invisible_until > timezone.now()
    assert sweep() == 1

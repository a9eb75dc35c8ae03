"""An operation while a worker holds the row, or somebody else decides: what waits, what does not, and who wins."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from tests import engine
from tests.engine import sweep
from tests.workflows import rows
from tests.workflows.operations.people import held, task, user
from workflows import operations
from workflows.errors import NotAllowed
from workflows.features.deferred_steps import operations as deferred_steps
from workflows.models import Event, ManualTask, Signal, Workflow
from workflows.signals import waking

HOLDS = {
    "retry": operations.retry,
    "run now": operations.run_now,
    "acknowledge": partial(operations.acknowledge, reason="Called.", seen=[]),
    "follow up": partial(deferred_steps.follow_up, step="thank"),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("operation", HOLDS.values(), ids=HOLDS)
def test_a_row_that_a_worker_holds_is_refused_without_waiting(boss: User, operation: Callable[..., None]) -> None:
    row = rows.failed()
    with held(row):
        asked = timezone.now()
        with pytest.raises(NotAllowed, match="It is running right now; try again in a moment"):
            operation(row.pk, user=boss)
        assert timezone.now() - asked < timedelta(seconds=1)
    assert not Event.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_decision_does_not_wait_for_the_worker_that_holds_the_row(boss: User) -> None:
    row = rows.waiting()
    question = ManualTask.objects.get()
    with held(row):
        asked = timezone.now()
        operations.approve(question.pk, user=boss)
        assert timezone.now() - asked < timedelta(seconds=1)
        assert Signal.objects.get().name == question.signal_name
        assert Workflow.objects.get(pk=row.pk).invisible_until == row.invisible_until  # the holder looks itself
    assert sweep() == 1


@pytest.mark.django_db(transaction=True)
def test_the_wake_up_comes_after_the_commit_of_the_signal(boss: User, monkeypatch: pytest.MonkeyPatch) -> None:
    rows.waiting()
    seen: list[Any] = []

    def wake(workflow_id: int) -> bool:
        seen.append(engine.elsewhere(lambda: Signal.objects.filter(workflow=workflow_id).count()))
        return True

    monkeypatch.setattr(waking, "wake", wake)
    operations.approve(ManualTask.objects.get().pk, user=boss)
    assert seen == [1]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_assigned", [False, True], ids=["its expiry", "an assignment"])
def test_a_decision_that_waited_for_another_change_sees_it(boss: User, is_assigned: bool) -> None:
    """Forced: the other update is uncommitted when the decision's starts, and commits while it waits."""
    row, anna = task(), user("anna", "decide")
    change = {"assignee": anna} if is_assigned else {"state": "expired", "expires_at": F("created_at")}
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            ManualTask.objects.filter(pk=row.pk).update(**change)
            approved = pool.submit(engine.with_its_connections, partial(operations.approve, row.pk, user=boss))
            engine.until_blocked()
        with pytest.raises(NotAllowed, match=r"^It is assigned to anna\." if is_assigned else "^It expired at"):
            approved.result(timeout=10)
    assert not Signal.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_decision_is_stored_though_the_database_fails_at_the_wake_up(boss: User) -> None:
    row = rows.waiting()
    question = ManualTask.objects.get()

    def end_the_connection_before_the_wake_up(execute: Any, sql: str, *rest: Any) -> Any:
        if "SKIP LOCKED" in sql:
            assert connection.connection is not None
            with engine.another_connection() as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.connection.info.backend_pid])
        return execute(sql, *rest)

    with connection.execute_wrapper(end_the_connection_before_the_wake_up):
        operations.approve(question.pk, user=boss)
    question.refresh_from_db()
    assert question.state == "approved"
    row.refresh_from_db()
    assert row.invisible_until > timezone.now()
    assert sweep() == 1

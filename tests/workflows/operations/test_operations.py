"""What people may do, what is refused to them and in which words, and who may do it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.utils import timezone

from tests.workflows import rows
from workflows import operations
from workflows.errors import NotAllowed
from workflows.features.brake import operations as causes
from workflows.features.deferred_steps import operations as deferred_steps
from workflows.features.outages import operations as services
from workflows.features.outbox import operations as outbox_operations
from workflows.features.queues import messages
from workflows.models import ApiKey, BulkOperation, Event, ManualTask, Signal, Workflow
from workflows.signals import store


def last_event(row: Workflow) -> Event:
    return Event.objects.filter(workflow=row).latest("id")


def is_due_since_just_now(row: Workflow) -> bool:
    return timezone.now() - timedelta(minutes=1) < row.invisible_until <= timezone.now()


# --- Retry --------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_bulk", [False, True])
def test_retry_puts_a_failed_workflow_back_before_the_backlog_unless_it_is_one_of_many(
    boss: User, in_bulk: bool
) -> None:
    """A thousand that went before everything new would hold it up for as long as they take."""
    row = rows.failed(
        created_at=timezone.now() - timedelta(hours=3),
        invisible_until=timezone.now() + timedelta(hours=1),
        waiting_for="nothing any more",
        wake_on=["decision:9"],
        begun=in_bulk,
    )
    operations.retry(row.pk, user=boss, reason=" \u200bThe bank is back. ", in_bulk=in_bulk)
    row.refresh_from_db()
    assert (row.status, row.completed_at, row.retry_count) == ("PENDING", None, 0)
    assert (row.waiting_for, row.wake_on, row.begun) == ("", [], not in_bulk)
    assert is_due_since_just_now(row)
    event = last_event(row)
    assert (event.kind, event.actor, event.step) == ("retried", "boss", "charge")
    assert event.detail == {"reason": "The bank is back."}


def test_retry_refuses_what_has_not_failed_and_says_what_it_is(boss: User) -> None:
    for make, word in [(rows.complete, "complete"), (rows.running, "running"), (rows.waiting, "waiting")]:
        row = make()
        before = Workflow.objects.filter(pk=row.pk).values().get()
        with pytest.raises(NotAllowed, match=f"^Only a failed workflow can be retried; this one is {word}\\.$"):
            operations.retry(row.pk, user=boss)
        assert Workflow.objects.filter(pk=row.pk).values().get() == before
        assert not Event.objects.filter(workflow=row).exists()


def test_retry_refuses_an_end_that_the_user_was_not_shown_and_starts_no_child_again(boss: User) -> None:
    parent = rows.cancelled()
    child = rows.cancelled(parent=parent, parent_wait="parcels", child_key="first")
    store.store(
        source=store.ENGINE, dedupe_key="cancel", name=store.CANCEL_SIGNAL, workflow_id=child.pk, payload={"by": "boss"}
    )
    parent.refresh_from_db()
    (ended,) = operations.ended_at(parent)
    with pytest.raises(NotAllowed, match="ended again since you looked"):
        operations.retry(parent.pk, user=boss, seen=[ended - 1])
    statuses = Workflow.objects.order_by("id").values_list("status", flat=True)
    assert list(statuses) == ["FAILED", "FAILED"]
    assert not BulkOperation.objects.exists()
    operations.retry(parent.pk, user=boss, seen=[ended])
    assert list(BulkOperation.objects.get().items.order_by("id").values_list("row", flat=True)) == [child.pk, parent.pk]


# --- Run now ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [rows.retrying, rows.waiting])
def test_run_now_makes_a_workflow_due_and_keeps_its_count_of_failures(
    boss: User, make: Callable[..., Workflow]
) -> None:
    row = make(created_at=timezone.now() - timedelta(hours=3))
    operations.run_now(row.pk, user=boss, reason="Payments is up.")
    after = Workflow.objects.get(pk=row.pk)
    assert (after.begun, after.retry_count) == (True, row.retry_count)
    assert is_due_since_just_now(after)
    assert (last_event(row).kind, last_event(row).actor) == ("run_now", "boss")


def test_run_now_refuses_what_ended_or_is_due(boss: User) -> None:
    for make, sentence in [
        (rows.failed, "still under way can be run now; this one is failed"),
        (rows.workflow, "It is due already"),
    ]:
        row = make()
        with pytest.raises(NotAllowed, match=sentence):
            operations.run_now(row.pk, user=boss)
        assert not Event.objects.filter(workflow=row).exists()


# --- Decisions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decide", "state", "approved"), [(operations.approve, "approved", True), (operations.reject, "rejected", False)]
)
def test_a_decision_is_kept_sent_to_the_inbox_and_wakes_the_workflow(
    boss: User, decide: Callable[..., None], state: str, approved: bool
) -> None:
    row = rows.waiting(created_at=timezone.now() - timedelta(hours=3))
    task = ManualTask.objects.get()
    decide(task.pk, user=boss, reason="Too heavy.")
    task.refresh_from_db()
    assert (task.state, task.decided_by, task.reason) == (state, boss, "Too heavy.")
    assert task.decided_at is not None
    signal = Signal.objects.get()
    assert (signal.source, signal.name, signal.workflow_id) == ("console", f"decision:{task.pk}", row.pk)
    assert signal.payload == {"approved": approved, "reason": "Too heavy.", "by": "boss"}
    assert (last_event(row).kind, last_event(row).detail) == (state, {"reason": "Too heavy.", "task": task.pk})
    woken = Workflow.objects.get(pk=row.pk)
    assert woken.begun
    assert is_due_since_just_now(woken)


def test_a_rejection_needs_a_reason(boss: User) -> None:
    rows.waiting()
    for reason in ("  ", " \u2060\ufeff\n"):
        with pytest.raises(NotAllowed, match="needs a reason"):
            operations.reject(ManualTask.objects.get().pk, user=boss, reason=reason)
    assert ManualTask.objects.get().state == "open"


# --- API keys -----------------------------------------------------------------------------------


def test_revoking_a_key_is_for_good_and_logged(boss: User) -> None:
    key = ApiKey.objects.create(name="web", prefix="onr_ab", digest=b"1")
    operations.revoke(key.pk, user=boss, reason="Leaked.")
    key.refresh_from_db()
    assert key.revoked_at is not None
    assert (LogEntry.objects.get().user, LogEntry.objects.get().change_message) == (boss, "Revoked. Leaked.")
    with pytest.raises(NotAllowed, match="revoked already"):
        operations.revoke(key.pk, user=boss)
    assert ApiKey.objects.get().revoked_at == key.revoked_at


# --- Who may ------------------------------------------------------------------------------------

# Of several permissions one is enough.
VERBS: list[tuple[tuple[str, ...], Callable[..., Any], dict[str, Any]]] = [
    ((operations.RETRY,), operations.retry, {}),
    ((operations.RUN_NOW,), operations.run_now, {}),
    ((operations.CANCEL,), operations.cancel, {"reason": "By phone."}),
    ((operations.ACKNOWLEDGE,), operations.acknowledge, {"reason": "Called.", "seen": []}),
    ((operations.FOLLOW_UP,), deferred_steps.follow_up, {"step": "confirm"}),
    ((operations.HOLD,), services.hold, {"until": timezone.now(), "reason": "They migrate."}),
    ((operations.TRY_NOW,), services.try_now, {"reason": "It is back."}),
    ((operations.LET_FAIL,), causes.let_fail, {"reason": "They are told."}),
    (operations.MAY_DECIDE, operations.claim_task, {}),
    (operations.MAY_DECIDE, operations.retract, {"reason": "Wrong."}),
    (operations.MAY_DECIDE, operations.approve, {}),
    (operations.MAY_DECIDE, operations.reject, {"reason": "No."}),
    ((operations.ASSIGN, *operations.MAY_DECIDE), operations.assign, {"to": 1, "seen": []}),
    ((operations.ASSIGN, *operations.MAY_DECIDE), operations.release_task, {}),
    ((operations.REVOKE,), operations.revoke, {}),
    ((operations.SETTLE,), messages.redeliver, {}),
    ((operations.SETTLE,), messages.discard, {"reason": "A test."}),
    ((operations.SETTLE,), outbox_operations.redeliver_event, {}),
    ((operations.SETTLE,), outbox_operations.discard_event, {"reason": "A test."}),
]


def test_each_verb_asks_for_its_own_permission(db: None) -> None:
    others, only = User.objects.create_user("others"), User.objects.create_user("only")
    ours = Permission.objects.filter(content_type__app_label="workflows")
    for permissions, operation, arguments in VERBS:
        own = [permission.removeprefix("workflows.") for permission in permissions]
        others.user_permissions.set(ours.exclude(codename__in=own))
        with pytest.raises(PermissionDenied):
            operation(4711, user=User.objects.get(pk=others.pk), **arguments)
        for each in own:
            only.user_permissions.set(ours.filter(codename=each))
            with pytest.raises(NotAllowed):  # allowed, and then there is no such row
                operation(4711, user=User.objects.get(pk=only.pk), **arguments)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("operation", [operations.retry, operations.run_now, operations.approve, operations.revoke])
def test_an_operation_refuses_to_run_inside_another_transaction(boss: User, operation: Callable[..., None]) -> None:
    with transaction.atomic(), pytest.raises(RuntimeError, match="commits what it does"):
        operation(1, user=boss)

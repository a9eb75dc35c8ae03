"""Rows in all the states that a page of the console can show, as the engine and people leave them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Group, Permission, User
from django.utils import timezone

from tests.console.scenes import paid, stopped, submitted, unclear_call
from tests.groups import make_groups
from tests.workflows import rows
from tests.workflows.admin.tasks import task
from tests.workflows.admin.test_connections import child, signal, wait
from tests.workflows.outages.services import open_cause, open_circuit
from workflows.models import (
    Access,
    ApiKey,
    BulkOperation,
    Chore,
    CircuitEvent,
    Erasure,
    Hold,
    ManualTask,
    OutboxEvent,
    Pace,
    Search,
    Service,
    State,
    UndeliveredMessage,
    WorkerProcess,
    Workflow,
)

PASSWORD = "correct horse battery"


IN_STATE: dict[State, Callable[[], Workflow]] = {**rows.IN_STATE, State.COMPLETE: rows.given_up}


def failed(path: str) -> str:
    """An address, once something has failed."""
    rows.failed()
    return path


def everything() -> Workflow:
    """A workflow with something in each part of its page."""
    stopped()
    row = stopped()
    Workflow.objects.filter(pk=row.pk).update(
        linking_id="link-4711-abcd", business_key=f"order-4711-{row.pk}", tenant="east"
    )
    ran = {"step": "create_account", "outcome": "ran", "ms": 12}
    failed = {"step": "enroll_in_program", "outcome": "failed", "ms": 90, "error_code": "program_full"}
    passed = {"step": "attach_payment_card", "outcome": "best_effort_failed", "ms": 9, "error_code": "card_invalid"}
    rows.attempt(
        row, number=1, outcome="vanished", died_in="start_visit", died_how="by signal 9", traceback="Traceback"
    )
    rows.attempt(row, number=2, outcome="failed", steps=[ran, passed, failed], traceback="Traceback:\n" + "x" * 300)
    for kind in ("retry_scheduled", "waiting", "retried", "failed", "undo_failed", "approved"):
        rows.event(row, kind, attempt=1, step="start_visit", actor="ada", detail={"reason": "As it says. " * 20})
    row.effects.create(step="start_visit", state="unknown", attempt=1, idempotency_key=f"{row.key}:start_visit")
    wait(
        row,
        "review",
        outcome="received",
        resolved_at=timezone.now(),
        signal=signal(row, f"{row.pk}:1", closed_at=timezone.now()),
    )
    signal(row, f"{row.pk}:2")
    signal(row, f"{row.pk}:3", ignored=True, closed_at=timezone.now())
    child(row, "one")
    child(row, "two", rows.failed)
    return row


def decided(state: str = "approved", **fields: Any) -> ManualTask:
    by = User.objects.get(username="some-superuser")
    return task(state=state, decided_by=by, decided_at=timezone.now(), reason="As it should be.", **fields)


def facts() -> list[list[Any]]:
    return [["Weight", "2 kg"], ["Fragile", True], ["Contents", ["lamp", "vase"]]]


def overdue() -> ManualTask:
    carla, _ = User.objects.get_or_create(username="carla", is_staff=True, is_superuser=True)
    hour = timedelta(hours=1)
    return task(due_at=timezone.now() - hour, assignee=carla, claimed_at=timezone.now(), facts=facts(), team="packers")


def taken_back() -> ManualTask:
    row = unclear_call()
    by = User.objects.get(username="some-superuser")
    ManualTask.objects.filter(pk=row.pk).update(
        state="approved", decided_by=by, decided_at=timezone.now(), reason="Seen at the bank."
    )
    detail = {"task": row.pk, "said": "happened", "fields": {"charge_id": "ch_1"}}
    rows.event(row.workflow, "approved", step="execute_checkout", actor=by.username, detail=detail)
    return row


def answer_that_was_taken_back() -> ManualTask:
    row = taken_back()
    detail = {"task": row.pk, "said": "happened", "reason": "Another patient's."}
    rows.event(row.workflow, "taken_back", step="execute_checkout", actor="some-superuser", detail=detail)
    ManualTask.objects.filter(pk=row.pk).update(state="taken_back")
    return row


def trouble() -> str:
    """Home when there is all that it can show."""
    rows.workflow(invisible_until=timezone.now() - timedelta(minutes=20))
    rows.parked(parked_on="programs")
    open_circuit()
    task(due_at=timezone.now() - timedelta(hours=1))
    cause()
    Chore.objects.create(name="expire", failing_since=timezone.now(), error="It cannot.")
    ahead = timezone.now() + timedelta(minutes=10)
    rows.workflow(created_at=ahead, invisible_until=ahead)
    return "/admin/"


def service() -> str:
    open_circuit()
    rows.parked(parked_on="programs")
    for kind in CircuitEvent.Kind:
        CircuitEvent.objects.create(service="programs", kind=kind, reason="The last 5 calls failed.")
    return "programs"


def cause() -> Service:
    """A step where many fail, with all that its page can show."""
    row = open_cause(traceback="File programs.py, in enroll", judged=[stopped().pk])
    rows.parked(parked_on=row.pk)
    open_cause("undo execute_checkout", elsewhere=True)
    Service.objects.filter(pk=row.pk).update(asked_by="ada", asked_at=timezone.now(), asked_reason="They are told.")
    for kind in CircuitEvent.Kind:
        CircuitEvent.objects.create(service=row.pk, kind=kind, reason="5 of 6 workflows have failed at this step.")
    return row


def worker() -> WorkerProcess:
    row = rows.running()
    rows.worker(42, stopped_at=timezone.now(), ended_how="signal 9")
    rows.worker(43, stopped_at=timezone.now())
    rows.worker(44, last_seen=timezone.now() - timedelta(days=1))
    return rows.worker(workflow=row, attempt=1, step="charge")


def key() -> ApiKey:
    ApiKey.objects.create(name="app", prefix="onr_cd", digest=uuid4().bytes, revoked_at=timezone.now())
    return ApiKey.objects.create(name="web", prefix="onr_ab", digest=uuid4().bytes)


def user() -> User:
    """One who has groups and permissions of their own."""
    make_groups()
    found, _ = User.objects.get_or_create(username="bob", is_staff=True)
    found.set_password(PASSWORD)
    found.save()
    found.groups.set(Group.objects.all()[:2])
    found.user_permissions.set(Permission.objects.all()[:2])
    by, _ = User.objects.get_or_create(username="ada")  # of whom something is on record, and who is not deleted
    LogEntry.objects.log_actions(by.pk, [found], CHANGE, "Changed a little.", single_object=True)
    return found


def group() -> Group:
    make_groups()
    return Group.objects.get(name="engineer")


def looked_at(address: str) -> str:
    """Somebody has looked at a workflow, and retried it; another submission has the same patient. `{}`: its number."""
    row, _ = submitted(), submitted()
    for kind, detail in (("viewed", {}), ("revealed", {"fields": ["patient.phone"], "purpose": "To call her back."})):
        Access.objects.create(actor="ada", kind=kind, workflow=row, detail=detail)
    Search.objects.create(actor="ada", tried=["email"], hits=1)
    rows.event(row, "retried", actor="ada", detail={"reason": "The bank is back."})
    return address.format(row.pk)


def end_all() -> None:
    Workflow.objects.filter(status="PENDING", compensating=False).update(status="COMPLETE", completed_at=timezone.now())


def found_twice() -> str:
    for _ in range(2):
        paid(submitted())
    return "/admin/find/"


def bulk_operation(state: str = "running", **fields: Any) -> BulkOperation:
    by, _ = User.objects.get_or_create(username="some-superuser", is_staff=True, is_superuser=True)
    row = rows.bulk_operation(by, rows.failed(), rows.complete(), state=state, **fields)
    row.items.filter(row=row.items.latest("row").row).update(
        outcome="skipped", why="It is complete.", at=timezone.now()
    )
    LogEntry.objects.log_actions(by.pk, [row], CHANGE, "Started. The bank is back.", single_object=True)
    return row


def held() -> Workflow:
    row = rows.complete()
    rows.legal_hold(row)
    return row


def erasure() -> Erasure:
    colleague, _ = User.objects.get_or_create(username="some-lead", is_staff=True)
    return Erasure.objects.first() or rows.erasure(colleague)


ROW_OF: dict[str, Callable[[], Any]] = {
    "workflow": lambda: rows.failed().pk,
    "manualtask": lambda: task().pk,
    "service": service,
    "pace": lambda: quote((Pace.objects.first() or rows.held_queue()).pk),
    "workerprocess": lambda: worker().pk,
    "bulkoperation": lambda: bulk_operation().pk,
    "apikey": lambda: key().pk,
    "undeliveredmessage": lambda: (UndeliveredMessage.objects.first() or rows.undelivered_message()).pk,
    "hold": lambda: (Hold.objects.first() or rows.legal_hold()).pk,
    "erasure": lambda: erasure().pk,
    "outboxevent": lambda: (OutboxEvent.objects.first() or rows.outbox_event()).pk,
}

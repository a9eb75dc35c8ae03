"""Submissions as support meets them, in the rows that the engine leaves of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.utils import timezone

from onboarding.samples import Kind, sample
from tests.workflows import rows
from tests.workflows.admin.tasks import task
from tests.workflows.admin.test_connections import child, signal, wait
from tests.workflows.features.brake.causes import open_cause
from tests.workflows.features.outages.services import open_circuit
from workflows.definition import definitions
from workflows.intake.submissions import enter
from workflows.models import Chore, CircuitEvent, ManualTask, Service, Workflow
from workflows.postgres.jsonb import document_of

EMAIL, PHONE = "ada.lovelace@example.com", "+15550102323"


def of(row: Any, page: str = "change") -> str:
    return f"/admin/workflows/{row._meta.model_name}/{row.pk}/{page}/"


def submitted(**fields: Any) -> Workflow:
    """A submission as it enters, with its search keys, and then as it stands."""
    payload = sample(Kind.PROGRAM_FULL).payload
    payload["patient"] |= {"email": EMAIL, "phone": PHONE}
    payload["checkout"] |= {"amount_cents": 14500, "currency": "usd"}
    document = document_of(payload)
    pk = enter(definitions()["onboarding"], idempotency_key=uuid4(), payload=document, submitted_by="web").id
    Workflow.objects.filter(pk=pk).update(**fields)
    return Workflow.objects.get(pk=pk)


def paid(row: Workflow, state: str = "done", **fields: Any) -> None:
    row.effects.create(
        **{
            "step": "execute_checkout",
            "state": state,
            "result": {"charge_id": "ch_1a2b", "payment_status": "paid"},
            "attempt": 1,
            "idempotency_key": f"{row.key}:execute_checkout",
            "settled_at": timezone.now(),
            **fields,
        }
    )


def stopped() -> Workflow:
    """A submission that failed because the program was full; what was paid was given back."""
    row = submitted(
        status="FAILED", completed_at=timezone.now(), current_step="enroll_in_program", last_error_code="program_full"
    )
    paid(row, "undone")
    return row


def charged() -> Workflow:
    """A submission that was charged, and whose enrolment is tried again in nine minutes."""
    later = timezone.now() + timedelta(minutes=9)
    row = submitted(invisible_until=later, retry_count=1, current_step="enroll_in_program")
    paid(row)
    return row


def unclear_call() -> ManualTask:
    """Was the card charged? The question as the engine puts it to the team `operations`."""
    question = "Unclear call: did “Charge the card” happen?"
    row = submitted(**_asked(question))
    return rows.open_task(
        row, about="execute_checkout", task_type="effect_in_doubt", team="operations", question=question
    )


def failed_reversal() -> ManualTask:
    """The refund failed three times; the question as the engine puts it to the team `operations`."""
    question = "The reversal of “Charge the card” failed 3 times. Has someone reversed it?"
    row = submitted(**_asked(question), compensating=True, last_error_code="program_full")
    paid(row, has_undo=True, undo_failures=3)
    return rows.open_task(
        row, about="execute_checkout", task_type="undo_in_doubt", team="operations", question=question
    )


def _asked(question: str) -> dict[str, Any]:
    later = timezone.now() + timedelta(days=30)
    return {"invisible_until": later, "waiting_for": question, "current_step": "execute_checkout"}


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


def cause() -> Service:
    """A step where many fail, with all that its page can show."""
    row = open_cause(traceback="File programs.py, in enroll", judged=[stopped().pk])
    rows.parked(parked_on=row.pk)
    open_cause("undo execute_checkout", elsewhere=True)
    Service.objects.filter(pk=row.pk).update(asked_by="ada", asked_at=timezone.now(), asked_reason="They are told.")
    for kind in CircuitEvent.Kind:
        CircuitEvent.objects.create(service=row.pk, kind=kind, reason="5 of 6 workflows have failed at this step.")
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

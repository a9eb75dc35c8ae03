"""Rows as the engine leaves them, for the tests of what people see and do."""

from __future__ import annotations

import uuid
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from django.contrib.auth.models import Permission, User
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone
from pydantic import BaseModel, Field

from tests.postgres import without_triggers
from workflows.correctable import Correctable
from workflows.definition import Step, WorkflowDefinition
from workflows.engine import undo_question
from workflows.features.pauses import operations as pauses
from workflows.models import (
    ApiKey,
    Attempt,
    BulkOperation,
    Confirmation,
    Correction,
    Effect,
    Erasure,
    Event,
    FollowUp,
    Hold,
    ManualTask,
    OutboxEvent,
    Pace,
    Pause,
    Proposal,
    State,
    UndeliveredMessage,
    Wait,
    WorkerProcess,
    Workflow,
)


class Context(BaseModel):
    account: str = ""
    reservation: dict[str, int] | None = None
    charge_id: str | None = Field(default=None, max_length=40, description="As the payments service calls it.")
    payment_status: Literal["paid", "payment_due"] | None = None
    receipt: UUID | None = None


class Sent(BaseModel):
    note: str | None = None


def reserve(**_: Any) -> None: ...
def review(**_: Any) -> None: ...
def charge(**_: Any) -> None: ...
def thank(**_: Any) -> None: ...


# A best-effort step whose call is kept, for the tests that add it to the list.
TELL = Step(thank, name="tell", best_effort=True, once=True, key_ttl=timedelta(days=1), returns=())

PARCEL = WorkflowDefinition(
    name="parcel",
    steps=[
        Step(reserve, once=True),
        review,
        Step(charge, once=True, returns=("charge_id", "payment_status", "receipt")),
        Step(thank, best_effort=True),
    ],
    context_class=Context,
    public_fields=["order"],
    correctable=Correctable(Sent, {"note": ("reserve",)}),
)


def workflow(**fields: Any) -> Workflow:
    """A workflow that is queued, unless its fields say otherwise."""
    return Workflow.objects.create(
        **{"idempotency_key": uuid.uuid4(), "workflow_type": "parcel", "payload": {}, **fields}
    )


def cancelled(**fields: Any) -> Workflow:
    return failed(
        **{
            "cancelled_at": Now(),
            "last_error_class": "workflows.errors.WorkflowCancelled",
            "last_error_code": "cancelled",
            "last_error_message": "Cancelled by some-support: Asked for by phone.",
            **fields,
        }
    )


def compensating(**fields: Any) -> Workflow:
    """A workflow that has failed, and whose charge is being undone."""
    row = failed(**{"status": "PENDING", "completed_at": None, "compensating": True, **fields})
    effect = {"step": "charge", "state": "done", "result": {}, "has_undo": True, "attempt": 1}
    Effect.objects.create(workflow=row, idempotency_key=f"{row.key}:charge", **effect)
    return row


def failed(**fields: Any) -> Workflow:
    row = workflow(
        **{
            "status": "FAILED",
            "completed_at": Now(),
            "current_step": "charge",
            "retry_count": 5,
            "last_error_class": "StepError",
            "last_error_code": "card_declined",
            "last_error_message": "The card was declined.",
            **fields,
        }
    )
    attempt(
        row,
        outcome="failed",
        steps=[
            {"step": "reserve", "outcome": "ran", "ms": 12},
            {"step": "review", "outcome": "skipped", "ms": 0},
            {
                "step": "charge",
                "outcome": "failed",
                "ms": 240,
                "error_class": "StepError",
                "error_code": "card_declined",
                "error_message": "The card was declined.",
            },
        ],
    )
    return row


def corrector(name: str) -> User:
    """Somebody who may have a workflow corrected: it was given to them, and they are no new user."""
    known = {"email": f"{name}@clinic.example", "is_staff": True, "date_joined": timezone.now() - timedelta(days=2)}
    user, _ = User.objects.update_or_create(username=name, defaults=known)
    user.user_permissions.add(Permission.objects.get(codename="correct_workflow"))
    return user


def asked_to_correct(row: Workflow | None = None, *, value: str = "Fragile!") -> Correction:
    """A correction of a failed workflow that somebody has asked for."""
    row = Workflow.objects.get(pk=(row or failed()).pk)
    assert row.completed_at
    return Correction.objects.create(
        workflow=row,
        of_failure=row.completed_at,
        proposed={"note": value},
        told=[{"field": "note", "label": "Note", "was": "nothing", "is": "\u2022\u2022\u2022"}],
        reason="She said so.",
        asked_by=corrector("bob-who-asks"),
    )


def refunded(**fields: Any) -> Workflow:
    """An onboarding that has failed, and whose charge was given back."""
    row = failed(**{"workflow_type": "onboarding", **fields})
    refunded_charge(row)
    return row


def refunded_charge(row: Workflow) -> None:
    effect = {"step": "execute_checkout", "state": "undone", "result": {"charge_id": "ch_1"}, "attempt": 1}
    Effect.objects.create(workflow=row, idempotency_key=f"{row.key}:charge", **effect)


def unclear_charge(**fields: Any) -> ManualTask:
    """The question whether an onboarding's charge happened."""
    row = waiting(workflow_type="onboarding", task=False, **fields)
    return open_task(row, about="execute_checkout", task_type="effect_in_doubt", team="operations")


def looked_up(**fields: Any) -> Workflow:
    """An onboarding that looks up again and again whether its charge happened."""
    row = retrying(workflow_type="onboarding", current_step="execute_checkout", **fields)
    call = {"step": "execute_checkout", "state": "unknown", "has_undo": True}
    Effect.objects.create(workflow=row, idempotency_key=f"{row.key}:execute_checkout", attempt=1, **call)
    return row


def to_confirm(by: User, row: Workflow, task: ManualTask | None = None) -> Confirmation:
    """What `by` has said of the task, or the retry that they ask for, and nobody has confirmed."""
    said = {"decision": "rejected" if task else "retry", "reason": "Not in the bank's list."}
    return Confirmation.objects.create(workflow=row, task=task, asked_by=by, **said)


def not_made(step: str = "enroll_in_program", **fields: Any) -> Workflow:
    """An onboarding that has failed at a call, which was refused."""
    row = failed(**{"workflow_type": "onboarding", "current_step": step, **fields})
    Effect.objects.create(
        workflow=row, step=step, state="not_done", idempotency_key=f"{row.key}:{step}", attempt=1, settled_by="call"
    )
    return row


def by_hand(by: User, row: Workflow | None = None) -> Confirmation:
    """What `by` says was charged by hand, and nobody has confirmed."""
    row = row or not_made("execute_checkout")
    said = {
        "call": row.effects.get().pk,
        "reference": "pos-77",
        "result": {"charge_id": "pos-77", "payment_status": "paid"},
    }
    return Confirmation.objects.create(
        workflow=row, decision="by_hand", answer=said, reason="Paid at the desk.", asked_by=by
    )


def made_by_hand(by: User, **fields: Any) -> Workflow:
    """An onboarding that goes on with an enrolment that was made by hand."""
    row = workflow(**{"workflow_type": "onboarding", "invisible_until": Now() + timedelta(hours=1), **fields})
    Effect.objects.create(
        workflow=row,
        step="enroll_in_program",
        generation=2,
        state="done",
        by_hand="en-77",
        result={"enrollment_id": "en-77"},
        settled_by=by.get_username(),
        idempotency_key=f"{row.key}:enroll_in_program:2",
        attempt=1,
    )
    return row


def hours_pass(hours: int, of: Confirmation | None = None) -> None:
    """What waits for a second person, or this, was asked for so much earlier; else the database sets that time."""
    with without_triggers():
        waiting = Confirmation.objects.filter(pk=of.pk) if of else Confirmation.objects.all()
        waiting.update(asked_at=F("asked_at") - timedelta(hours=hours))


def confirmed_alone(by: User, row: Workflow) -> Confirmation:
    """What a lead has confirmed alone, and nobody has reviewed."""
    made = to_confirm(by, row)
    hours_pass(9, of=made)
    Confirmation.objects.filter(pk=made.pk).update(state="confirmed", decided_by=by, alone=True)
    return made


def complete(**fields: Any) -> Workflow:
    return workflow(**{"status": "COMPLETE", "completed_at": Now(), **fields})


def left_undone(step: str = "thank", **fields: Any) -> Workflow:
    """A complete workflow whose best-effort step failed and was passed over."""
    row = complete(**fields)
    error = {"error_class": "StepError", "error_code": "no_address", "error_message": "There is no address."}
    attempt(row, outcome="complete", steps=[{"step": step, "outcome": "best_effort_failed", "ms": 12, **error}])
    event(row, "best_effort_failed", attempt=1, step=step, detail=error)
    event(row, "completed", attempt=1)
    return row


def given_up(step: str = "thank", **fields: Any) -> Workflow:
    """A complete workflow whose deferred step was given up after three failures."""
    row = left_undone(step, **fields)
    FollowUp.objects.create(workflow=row, step=step, queue=row.queue, due_at=None, failures=3)
    error = {"error_class": "StepError", "error_code": "gone", "error_message": "The address is gone."}
    event(row, "follow_up_given_up", attempt=2, step=step, detail=error)
    return row


def retrying(**fields: Any) -> Workflow:
    later = timezone.now() + timedelta(minutes=5)
    return workflow(
        **{
            "invisible_until": later,
            "retry_count": 2,
            "current_step": "charge",
            "last_error_class": "RetryableStepError",
            "last_error_code": "payments_unavailable",
            **fields,
        }
    )


def running(**fields: Any) -> Workflow:
    row = workflow(**fields)
    Attempt.objects.create(workflow=row, number=1, worker="host-a:41")
    return row


def parked(**fields: Any) -> Workflow:
    """A workflow that waits for a service, which is unavailable."""
    return workflow(
        **{
            "invisible_until": timezone.now() + timedelta(minutes=50),
            "parked_on": "payments",
            "parked_at": timezone.now() - timedelta(minutes=10),
            "waiting_for": "the service payments, which is unavailable",
            "current_step": "charge",
            "retry_count": 2,
            **fields,
        }
    )


def waiting(*, task: bool = True, **fields: Any) -> Workflow:
    """A workflow that waits for a person, with the wait and the open task."""
    later = timezone.now() + timedelta(hours=72)
    row = workflow(
        **{"invisible_until": later, "waiting_for": "May this parcel go out?", "current_step": "review", **fields}
    )
    if task:
        open_task(row)
    return row


def paused(by: User, row: Workflow | None = None, *, until: timedelta = timedelta(hours=1)) -> Workflow:
    """A workflow that a user has paused; `until` may lie in the past."""
    row = row or retrying()
    pauses.pause(row.pk, user=by, reason="Her insurer calls back.", until=timezone.now() + timedelta(hours=1))
    Pause.objects.filter(workflow=row).update(until=timezone.now() + until)
    return row


def overdue_wait(*, due: timedelta = timedelta(hours=-1), team: str = "", **fields: Any) -> Workflow:
    """A workflow that waits for a signal, which ought to have come an hour ago."""
    row = waiting(task=False, **{"waiting_for": "the carrier's word", "wake_on": ["sent"], **fields})
    at = {"deadline": row.invisible_until, "due_at": timezone.now() + due}
    Wait.objects.create(workflow=row, kind="signal", name="sent", waiting_for=row.waiting_for, team=team, **at)
    return row


def open_task(row: Workflow, *, about: str = "charge", **fields: Any) -> ManualTask:
    """`about` is the step whose call, or undo, is in doubt, if the question is about one."""
    deadline = fields.pop("expires_at", row.invisible_until)
    kind = {"effect_in_doubt": "effect", "undo_in_doubt": "undo"}.get(fields.get("task_type", ""))
    plain = undo_question.WAIT if fields.get("task_type") == undo_question.TASK_TYPE else "review"
    name = f"{kind}:{about}:1" if kind else plain
    if kind == "effect":
        Effect.objects.create(
            workflow=row, step=about, state="unknown", attempt=1, idempotency_key=f"{row.key}:{about}"
        )
    wait = Wait.objects.create(workflow=row, name=name, waiting_for=row.waiting_for, deadline=deadline)
    task = ManualTask.objects.create(
        **{
            "workflow": row,
            "wait": wait,
            "task_type": "parcel review",
            "question": "May this parcel go out?",
            "expires_at": deadline,
            **fields,
        }
    )
    Workflow.objects.filter(pk=row.pk).update(wake_on=[task.signal_name])
    return task


def attempt(row: Workflow, number: int = 1, **fields: Any) -> Attempt:
    return Attempt.objects.create(
        **{"workflow": row, "number": number, "worker": "host-a:41", "closed_at": Now(), **fields}
    )


def event(row: Workflow, kind: str, **fields: Any) -> Event:
    return Event.objects.create(workflow=row, kind=kind, **fields)


def worker(pid: int = 41, **fields: Any) -> WorkerProcess:
    """A worker of host-a that lives, and is idle unless an attempt says otherwise."""
    values = {"name": f"host-a:{pid}", "host": "host-a", "pid": pid, "release": "r7", "queue": "default", **fields}
    return WorkerProcess.objects.create(**values)


def undelivered_message(
    offset: int = 7, *, value: bytes = b"", headers: Sequence[Any] = (), **fields: Any
) -> UndeliveredMessage:
    """A message from before they were sealed."""
    values = {
        "topic": "facts",
        "partition": 2,
        "offset": offset,
        "code": "field_unknown",
        "reason": "No such field.",
        "content": {"key": None, "value": b64encode(value).decode(), "headers": [*headers]},
        **fields,
    }
    return UndeliveredMessage.objects.create(**values)


def legal_hold(row: Workflow | None = None, **fields: Any) -> Hold:
    """A hold on a workflow, or on what the fields say."""
    on = {} if "hash" in fields else {"workflow": row or complete()}
    until = timezone.now() + timedelta(days=30)
    return Hold.objects.create(**{"reason": "A court asks.", "placed_by": "ada", "until": until, **on, **fields})


def erasure(asked_by: User, row: Workflow | None = None, **fields: Any) -> Erasure:
    """An erasure that somebody has asked for."""
    said = {"hash": b"", "workflows": [(row or complete()).pk], "reason": "Ticket 812."}
    return Erasure.objects.create(asked_by=asked_by, **{**said, **fields})


def proposal(asked_by: User, row: Workflow) -> Proposal:
    """What a program of this user's proposes: to retry a failed workflow."""
    from workflows.features.operator_api.acts import find_workflow, seen_of_workflow  # the console's pages

    of_key = {"prefix": "onr_cd", "digest": uuid.uuid4().bytes, "verbs": [], "may": ["propose"]}
    found = find_workflow(row.pk)
    assert found
    return Proposal.objects.create(
        verb="retry",
        row=row.pk,
        workflow=row,
        seen=seen_of_workflow(found),
        reason="It hangs.",
        api_key=ApiKey.objects.create(name="chat", person=asked_by, **of_key),
        asked_by=asked_by,
        lapses_at=timezone.now() + timedelta(days=1),
        idempotency_key=uuid.uuid4(),
    )


def outbox_event(row: Workflow | None = None, **fields: Any) -> OutboxEvent:
    """An event that was given up, unless the fields say otherwise."""
    values = {
        "event_id": uuid.uuid4(),
        "destination": "crm",
        "topic": "order.paid",
        "body": {"n": 1},
        "state": "given_up",
    }
    made = OutboxEvent.objects.create(workflow=row or workflow(), **{**values, **fields})
    made.refresh_from_db()
    return made


def held_queue(key: str = "queue:slow", **fields: Any) -> Pace:
    until = timezone.now() + timedelta(hours=1)
    return Pace.objects.create(
        key=key, **{"held_until": until, "held_by": "ada", "held_reason": "They move.", **fields}
    )


def bulk_operation(by: User, *about: Workflow, outcome: str = "", why: str = "", **fields: Any) -> BulkOperation:
    """A retry of these, asked for by this user; a draft unless `state` says otherwise."""
    values = {"verb": "retry", "chosen_by": "state: Failed", "reason": "The bank is back.", **fields}
    made = BulkOperation.objects.create(selected=len(about), asked_by=by, **values)
    for row in about:
        made.items.create(row=row.pk, outcome=outcome, why=why)
    return made


def delete(row: Workflow) -> None:
    """As if it had been deleted for its age."""
    with without_triggers():
        Workflow.objects.filter(pk=row.pk).delete()


# Of each state a way to make a workflow in it.
IN_STATE: dict[State, Callable[[], Workflow]] = {
    State.QUEUED: workflow,
    State.RUNNING: running,
    State.RETRYING: retrying,
    State.WAITING: waiting,
    State.PARKED: parked,
    State.COMPENSATING: compensating,
    State.COMPLETE: complete,
    State.FAILED: failed,
    State.CANCELLED: cancelled,
}

"""The console with something of everything in it, and somebody of every kind in front of it."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from typing import Any
from uuid import uuid4

from allauth.usersessions.models import UserSession
from django.contrib.admin.utils import quote
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, Permission, User
from django.db.models import F, TextField, Value
from django.db.models.functions import Concat, Now
from django.test import Client
from django.utils import timezone

from tests.groups import make_groups
from tests.workflows import rows
from tests.workflows.features.brake.causes import open_cause
from tests.workflows.features.outages.services import open_circuit
from workflows import operations
from workflows.features.cases.operations import ask_lead, hand_to_team
from workflows.models import (
    ApiKey,
    BulkOperation,
    Chore,
    Deputy,
    Effect,
    ManualTask,
    Service,
    Signal,
    UndeliveredMessage,
    Wait,
    Workflow,
)

# The columns of the table, with the letter of each.
ROLES = {
    "R": "superuser",
    "S": "support",
    "L": "support lead",
    "A": "approver",
    "E": "engineer",
    "O": "operations",
    "U": "auditor",
    "M": "user administrator",
    "G": "staff without a group",
    "C": "a user who is not staff",
    "N": "nobody",
}
GROUPS = {"support", "support lead", "approver", "engineer", "operations", "auditor"}
PASSWORD = "correct horse battery"

# In the data of a patient; in the facts of tasks, and of the engine's questions, which are for those who decide them.
CANARIES = CANARY, FACT, ASKED = "canary-in-the-data", "canary-in-the-facts", "canary-asked-for"

# The names of rows, as tests say them.
WORKFLOWS = ("failed", "retrying", "given-up", "twice-given-up", "complete", "reversing", "cancelled", "to-correct")
TASKS = (
    *("anybodys", "of-own-team", "of-other-team", "question", "unclear-call", "failed-reversal", "gone-step", "lost"),
    "undecided",
    *("claimed", "claimed-by-lead", "answered", "expired"),
)

# Of the teams of tasks, the one that the approver is in.
OWN_TEAM = "clinicians"


class Scene:
    """`args` are those of the URLs of the table, by the names that it gives to rows."""

    def __init__(self) -> None:
        make_groups()
        Group.objects.bulk_create(Group(name=name) for name in ("reception", OWN_TEAM, "pharmacists"))
        self.boss = User.objects.create_superuser("boss")
        self.colleague = User.objects.create_user("colleague", is_staff=True)
        self.colleague.groups.set([Group.objects.get(name="reception")])
        self.lead = User.objects.create_user("lead", is_staff=True)
        self.lead.groups.set([Group.objects.get(name="support lead")])
        self.args: dict[str, Any] = {
            **self._workflows(),
            **self._tasks(),
            **self._bulk_operations(),
            "service": open_circuit(trial_in=3600).pk,
            "held-service": _held_service().pk,
            "cause": quote(open_cause(traceback="in enroll", judged=[rows.failed().pk]).pk),
            "slow-queue": quote(rows.held_queue().pk),
            "key": ApiKey.objects.create(name="web", prefix="onr_ab", digest=b"1").pk,
            "message": rows.undelivered_message().pk,
            "event": rows.outbox_event().pk,
            "worker": rows.worker().pk,
            "chore": Chore.objects.create(name="add up", set_aside_at=timezone.now()).pk,
            "boss": self.boss.pk,
            "colleague": self.colleague.pk,
            "lead": self.lead.pk,
            "reception": Group.objects.get(name="reception").pk,
            "engineers": Group.objects.get(name="engineer").pk,
            "app": "workflows",
        }
        _fill_with_canaries()
        # Still to come: nobody counts as another yet.
        begins, ends = (timezone.now() + timedelta(days=days) for days in (2, 3))
        Deputy.objects.create(absent=self.lead, deputy=self.boss, begins_at=begins, ends_at=ends, set_by="lead")
        # Nothing of it is unsettled.
        settled = rows.complete(payload={"patient": CANARY})
        self.args |= {
            "settled": settled.pk,
            "made-by-hand": rows.made_by_hand(self.boss).pk,
            "emptied": rows.failed(workflow_type="onboarding", payload={}, emptied_at=Now()).pk,
            "hold": rows.legal_hold(rows.complete()).pk,
            "proposal": rows.proposal(self.boss, rows.failed()).pk,
            "erasure": rows.erasure(self.boss, rows.complete(payload={"patient": CANARY})).pk,
        }

    def sign_in(self, role: str) -> Client:
        """A browser of somebody of that role, who has claimed a task, and chosen rows."""
        client = Client()
        if role != "nobody":
            user = self._user(role)
            ManualTask.objects.filter(pk=self.args["claimed"]).update(assignee=user, claimed_at=timezone.now())
            BulkOperation.objects.filter(pk=self.args["draft"]).update(asked_by=user)
            for each in (Client(), client):  # elsewhere, too
                each.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
                UserSession.objects.create(user=user, ip="192.0.2.1", session_key=each.session.session_key)
        return client

    def _user(self, role: str) -> User:
        user: User = User.objects.create(
            username="you",
            password=make_password(PASSWORD),
            is_staff=role != "a user who is not staff",
            is_superuser=role == "superuser",
            email="you@clinic.example",
            date_joined=timezone.now() - timedelta(days=2),
        )
        if role in GROUPS:
            user.groups.set(Group.objects.filter(name__in=[role, *([OWN_TEAM] if role == "approver" else [])]))
        if role == "user administrator":
            administers = Permission.objects.filter(content_type__model__in=["user", "group"])
            user.user_permissions.set(administers.filter(content_type__app_label="auth"))
            user.groups.set(Group.objects.filter(name="reception"))
        return user

    def _workflows(self) -> dict[str, Any]:
        twice = rows.given_up()
        rows.event(twice, "best_effort_failed", attempt=1, step="review", detail={"error_code": "gone"})
        lead_asked = rows.failed()
        ask_lead(lead_asked.pk, user=self.boss, reason="She has paid twice.")
        handed = rows.failed()
        hand_to_team(handed.pk, user=self.boss, team="support lead", reason="She has paid twice.")
        acknowledged = rows.failed()
        seen = operations.failures_left(Workflow.objects.get(pk=acknowledged.pk))
        operations.acknowledge(acknowledged.pk, user=self.boss, reason="Called.", seen=seen)
        return {
            "failed": rows.failed().pk,
            "acknowledged": acknowledged.pk,
            "lead-asked": lead_asked.pk,
            "retrying": rows.retrying(invisible_until=timezone.now() + timedelta(hours=1)).pk,  # however slow a walk
            "looked-up": rows.looked_up(invisible_until=timezone.now() + timedelta(hours=1)).pk,
            "given-up": rows.given_up().pk,
            "twice-given-up": twice.pk,
            "complete": rows.complete().pk,
            "reversing": rows.compensating().pk,
            "cancelled": rows.cancelled().pk,
            "submission": rows.failed(workflow_type="onboarding").pk,
            "duplicate": rows.failed(last_error_code="duplicate_of").pk,
            "to-correct": rows.asked_to_correct(value=CANARY).workflow_id,
            "to-confirm": rows.to_confirm(self.boss, rows.refunded()).workflow_id,
            "not-made": rows.not_made().pk,
            "to-confirm-by-hand": rows.by_hand(self.boss).workflow_id,
            "alone": rows.confirmed_alone(self.boss, rows.complete()).workflow_id,
            "queued": rows.workflow().pk,
            "handed": handed.pk,
            "stopped": rows.paused(self.boss).pk,
            "running": rows.running().pk,
            "waiting": rows.waiting().pk,
            "parked": rows.parked().pk,
            "parked-on-cause": rows.parked(parked_on="onboarding/enroll_in_program: TypeError").pk,
        }

    def _tasks(self) -> dict[str, Any]:
        theirs = {"assignee": self.lead, "claimed_at": timezone.now()}
        engine = {"team": "operations"}
        answered = _task(task_type="effect_in_doubt", about="reserve", **engine)
        operations.approve(answered.pk, user=self.boss, answer={})
        return {
            "anybodys": _task().pk,
            "of-own-team": _task(team=OWN_TEAM).pk,
            "of-other-team": _task(team="pharmacists").pk,
            "question": _task(task_type="keeps_dying", **engine).pk,
            "unclear-call": _task(task_type="effect_in_doubt", **engine).pk,
            "failed-reversal": _of_reversal("undo_in_doubt").pk,
            "undecided": _of_reversal("before_undo").pk,
            "gone-step": _task(task_type="step_undeclared", **engine).pk,
            "lost": _task(task_type="keeps_being_lost", **engine).pk,
            "claimed": _task().pk,
            "claimed-by-lead": _task(**theirs, **engine).pk,
            "to-confirm-answer": _answer_to_confirm(self.boss).pk,
            "answered": answered.pk,
            "expired": _task(expires_at=timezone.now() - timedelta(hours=1)).pk,
        }

    def _bulk_operations(self) -> dict[str, Any]:
        row, states = rows.failed(), ("draft", "asked", "running", "paused")
        return {state: rows.bulk_operation(self.boss, row, state=state).pk for state in states}

    def of(self, row: str) -> tuple[Any, ...]:
        """The arguments of a URL for a row that the table names; none for an empty name."""
        args = self.args[row] if row else ()
        return args if isinstance(args, tuple) else (args,)


def _task(**fields: Any) -> ManualTask:
    return rows.open_task(rows.waiting(task=False), **fields)


def _held_service() -> Service:
    """Its trial is an hour away: none comes due during a walk, however slow."""
    service = open_circuit("labels", trial_in=3600)
    service.held_by, service.held_reason = "boss", "By phone."
    service.save()
    return service


def _answer_to_confirm(by: User) -> ManualTask:
    task = rows.unclear_charge()
    rows.to_confirm(by, task.workflow, task)
    return task


def _of_reversal(task_type: str) -> ManualTask:
    row = rows.compensating(last_error_code="overdue")  # a retry may help
    later = timezone.now() + timedelta(hours=72)
    return rows.open_task(row, task_type=task_type, team="operations", expires_at=later)


def _fill_with_canaries() -> None:
    """Let every row have data of a patient's, wherever there can be some."""
    Workflow.objects.update(
        payload={"patient": {"email": CANARY, CANARY: 1, "list": [CANARY, {"a": CANARY}]}, CANARY.upper(): {"a": 1}},
        context={"account": CANARY, "nested": {"deep": [CANARY]}},
        linking_id=f"{CANARY}-link",
        business_key=Concat(Value(CANARY), F("id"), output_field=TextField()),
    )
    said = {"payload": CANARY, "anything": {"else": CANARY}}
    for row in Workflow.objects.exclude(pk__in=ManualTask.objects.values("workflow")):
        for kind in ("failed", "waiting", "retry_scheduled", "completed", "vanished"):
            rows.event(row, kind, detail=said)
        row.children.create(
            idempotency_key=uuid4(), payload=said, workflow_type="parcel", parent_wait="parcels", child_key="a"
        )
    signal = {"source": "web", "name": "x", "payload": said}
    for number, row in enumerate(Workflow.objects.all()):
        row.signals.create(dedupe_key=f"{CANARY}-{number}", **signal)
        row.signals.create(dedupe_key=f"{CANARY}-used-{number}", closed_at=Now(), **signal)
    Signal.objects.create(dedupe_key=CANARY, linking_id=f"{CANARY}-link", **signal)
    Wait.objects.update(result=said)
    Effect.objects.update(result=said)
    ManualTask.objects.update(facts=[["Weight", FACT]])
    ManualTask.objects.filter(team="operations").update(facts=[["Charge", ASKED]])
    value = b64encode(CANARY.encode()).decode()
    UndeliveredMessage.objects.update(content={"key": None, "value": value, "headers": [[CANARY, None]]})

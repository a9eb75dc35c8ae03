"""The console with something of everything in it, and somebody of every kind in front of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.utils import timezone

from tests.groups import make_groups
from tests.workflows import rows
from tests.workflows.outages.services import open_circuit
from workflows import operations
from workflows.models import ApiKey, ManualTask

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

# The names of rows, as tests say them.
WORKFLOWS = ("failed", "retrying", "given-up", "twice-given-up", "complete", "reversing", "cancelled")
TASKS = (
    *("anybodys", "of-own-team", "of-other-team", "question", "unclear-call", "failed-reversal", "gone-step", "lost"),
    *("claimed", "claimed-by-lead", "answered", "expired"),
)

# Of the teams of tasks, the one that the approver is in.
OWN_TEAM = "clinicians"


class Scene:
    """`args` are those of the URLs of the table, by the names that it gives to rows."""

    def __init__(self, role: str) -> None:
        make_groups()
        self.role = role
        self.boss = User.objects.create_superuser("boss")
        self.user = self._user(role)
        self.colleague = User.objects.create_user("colleague", is_staff=True)
        self.colleague.groups.set([Group.objects.get(name="reception")])
        self.lead = User.objects.create_user("lead", is_staff=True)
        self.lead.groups.set([Group.objects.get(name="support lead")])
        self.args: dict[str, Any] = {
            **self._workflows(),
            **self._tasks(),
            "service": open_circuit().pk,
            "key": ApiKey.objects.create(name="web", prefix="onr_ab", digest=b"1").pk,
            "message": rows.undelivered_message().pk,
            "worker": rows.worker().pk,
            "boss": self.boss.pk,
            "colleague": self.colleague.pk,
            "lead": self.lead.pk,
            "reception": Group.objects.get(name="reception").pk,
            "engineers": Group.objects.get(name="engineer").pk,
            "app": "workflows",
        }

    def _user(self, role: str) -> User | None:
        reception, clinicians = (Group.objects.create(name=name) for name in ("reception", OWN_TEAM))
        Group.objects.create(name="pharmacists")
        if role == "nobody":
            return None
        user: User = User.objects.create(
            username="you",
            password=make_password(PASSWORD),
            is_staff=role != "a user who is not staff",
            is_superuser=role == "superuser",
        )
        if role in GROUPS:
            user.groups.set([Group.objects.get(name=role), *([clinicians] if role == "approver" else [])])
        if role == "user administrator":
            administers = Permission.objects.filter(content_type__model__in=["user", "group"])
            user.user_permissions.set(administers.filter(content_type__app_label="auth"))
            user.groups.set([reception])
        return user

    def _workflows(self) -> dict[str, Any]:
        twice = rows.given_up()
        rows.event(twice, "best_effort_failed", attempt=1, step="review", detail={"error_code": "gone"})
        return {
            "failed": rows.failed().pk,
            "retrying": rows.retrying().pk,
            "given-up": rows.given_up().pk,
            "twice-given-up": twice.pk,
            "complete": rows.complete().pk,
            "reversing": rows.compensating().pk,
            "cancelled": rows.cancelled().pk,
        }

    def _tasks(self) -> dict[str, Any]:
        claimed = {"assignee": self.user, "claimed_at": timezone.now()} if self.user else {}
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
            "failed-reversal": _undo_in_doubt().pk,
            "gone-step": _task(task_type="step_undeclared", **engine).pk,
            "lost": _task(task_type="keeps_being_lost", **engine).pk,
            "claimed": _task(**claimed).pk,
            "claimed-by-lead": _task(**theirs, **engine).pk,
            "answered": answered.pk,
            "expired": _task(expires_at=timezone.now() - timedelta(hours=1)).pk,
        }

    def of(self, row: str) -> tuple[Any, ...]:
        """The arguments of a URL for a row that the table names; none for an empty name."""
        args = self.args[row] if row else ()
        return args if isinstance(args, tuple) else (args,)

    def sign_in(self, *, csrf: bool = False) -> Client:
        client = Client(enforce_csrf_checks=csrf, raise_request_exception=True)
        if self.user:
            client.force_login(self.user, backend="django.contrib.auth.backends.ModelBackend")
        return client


def _task(**fields: Any) -> ManualTask:
    return rows.open_task(rows.waiting(task=False), **fields)


def _undo_in_doubt() -> ManualTask:
    row = rows.compensating()
    later = timezone.now() + timedelta(hours=72)
    return rows.open_task(row, task_type="undo_in_doubt", team="operations", expires_at=later)

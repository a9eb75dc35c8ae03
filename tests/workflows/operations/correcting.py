"""A type of workflow of which some fields may be corrected, and two people who may."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from django.contrib.auth.models import Permission, User
from django.utils import timezone
from pydantic import BaseModel, SecretStr, StringConstraints

from workflows import operations
from workflows.correctable import Correctable
from workflows.definition import Brake
from workflows.errors import StepError
from workflows.features.corrections import operations as corrections
from workflows.models import Correction, Workflow
from workflows.search import normalise
from workflows.search.search_keys import SearchKey
from workflows.wording import CallerField, Money, Wording

TYPO, RIGHT = "jane@exmaple.com", "jane@example.com"


class Patient(BaseModel):
    email: Annotated[str, StringConstraints(pattern=r".+@.+")]
    phone: str | None = None


class Sent(BaseModel):
    patient: Patient
    program: str = ""
    count: int = 0
    amount: int = 0
    password: SecretStr | None = None
    tags: list[str] = []


CORRECTABLE = Correctable(Sent, {"patient.email": ("register",), "patient.phone": (), "program": ()})
EMAIL = Correctable(Sent, {"patient.email": ()})
OPTIONS: dict[str, Any] = {
    "brake": Brake(failures=1000),
    "secret_fields": ("password",),
    "search_keys": {"email": SearchKey("patient.email", normalise.email)},
    "business_key": ("patient.email", "program"),
    "wording": Wording(
        caller=[CallerField("E-mail", "patient.email", lambda value: f"•••@{value.partition('@')[2]}")],
        money=Money("charge", "amount", "currency", reference="id", refund="id"),
    ),
}


def check(*, workflow: Workflow, context: Any) -> None:
    if workflow.payload["patient"]["email"] == TYPO:
        raise StepError("There is no such domain.", code="refused")


def person(name: str, **fields: Any) -> User:
    """Somebody to whom somebody gave the permission, the day before yesterday."""
    made = {"email": f"{name}@clinic.example", "is_staff": True, "date_joined": timezone.now() - timedelta(days=2)}
    user = User.objects.create(username=name, **{**made, **fields})
    if not user.is_superuser:
        names = ["correct_workflow", "retry_workflow", "cancel_paid_workflow"]
        user.user_permissions.set(Permission.objects.filter(codename__in=names))
    return user


def ask(row: Workflow, user: User, **values: Any) -> Correction:
    values = values or {"patient.email": RIGHT}
    seen = operations.ended_at(row)
    corrections.ask(row.pk, user=user, reason="She said so, ticket 7.", values=values, seen=seen)
    return Correction.objects.latest("pk")


def approve(asked: Correction, user: User, **values: Any) -> None:
    values = values or {"patient.email": RIGHT}
    corrections.approve(asked.workflow_id, user=user, values=values, seen=[asked.pk])


def correct(row: Workflow) -> None:
    """Two people have it corrected, and started again."""
    approve(ask(row, person("bob")), person("carol"))


def reread(row: Workflow) -> Workflow:
    return Workflow.objects.get(pk=row.pk)

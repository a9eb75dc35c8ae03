"""A bank whose charge two people let be made again, the leads who do, and how eight hours pass."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Permission, User
from django.utils import timezone

from tests.engine import again, define, submit, work
from tests.workflows.operations.bank import Bank
from workflows import operations
from workflows.definition import Retry, Step, WorkflowStep
from workflows.errors import StepError
from workflows.models import Confirmation, ManualTask, Workflow
from workflows.wording import Money, Wording

CHARGE = Wording(money=Money(step="pay", amount="cents", currency="currency", reference="number", refund="refund"))
RIGHTS = ("decide_manualtask", "retry_workflow", "cancel_workflow", "cancel_paid_workflow", "view_workflow")


def lead(name: str, *rights: str, days: int = 2, **fields: Any) -> User:
    made = User.objects.create_user(name, f"{name}@example.com", is_staff=True, **fields)
    made.user_permissions.set(Permission.objects.filter(codename__in=rights or RIGHTS))
    User.objects.filter(pk=made.pk).update(date_joined=timezone.now() - timedelta(days=days))
    return User.objects.get(pk=made.pk)


def known(*steps: Step | WorkflowStep, two_people: bool = True, **options: Any) -> None:
    define(steps, retry=Retry(base_delay=0), two_people=two_people, wording=CHARGE, **options)


def in_doubt(bank: Bank, *after: Step | WorkflowStep, two_people: bool = True, **policy: Any) -> ManualTask:
    """The question whether the charge happened, whose answer never came."""
    known(bank.step(**policy), *after, two_people=two_people)
    again(work(submit()))
    return ManualTask.objects.get()


def declined(*, workflow: Workflow, context: Any) -> None:
    raise StepError("No.", code="refused")


def no(task: ManualTask, user: User) -> str:
    return operations.reject(task.pk, user=user, reason="Not in the bank's list.")


def asked() -> list[int]:
    return list(Confirmation.objects.filter(state="asked").values_list("pk", flat=True))


def confirm(task: ManualTask, user: User, seen: list[int] | None = None) -> None:
    operations.confirm(task.pk, user=user, seen=asked() if seen is None else seen, reason="Nor in mine.")


def permissions(*codenames: str) -> list[Permission]:
    return list(Permission.objects.filter(codename__in=codenames))

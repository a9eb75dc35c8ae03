"""Steps that ask a person, and people who answer."""

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from workflows.models import ManualTask, Workflow
from workflows.signals import store, waking
from workflows.waits import require_approval

HOURS_72 = timedelta(hours=72)


def ask(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    approval = require_approval(
        workflow, "review", question="May it go on?", facts={"Weight": "92 kg", "Age": "52"}, timeout=HOURS_72
    )
    return {"text": f"{approval.decided_by}: {approval.reason}"}


def decide(task: ManualTask, *, approved: bool, reason: str = "", **answer: Any) -> None:
    """What an operation does: the task and the signal in one transaction, the wake-up after it."""
    user, _ = User.objects.get_or_create(username="ada")
    state = ManualTask.State.APPROVED if approved else ManualTask.State.REJECTED
    with transaction.atomic():
        ManualTask.objects.filter(pk=task.pk, state="open").update(
            state=state, decided_by=user, decided_at=timezone.now(), reason=reason
        )
        told = {"approved": approved, "by": "ada", "reason": reason, **answer}
        name = task.signal_name
        store.store(source="console", dedupe_key=name, name=name, workflow_id=task.workflow_id, payload=told)
    waking.wake(task.workflow_id)


def boss() -> User:
    return User.objects.get_or_create(username="boss", is_superuser=True, is_staff=True)[0]

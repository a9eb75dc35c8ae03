"""Each verb of the console with a row that it fits: where to post, and what."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.features.outages.services import open_circuit
from workflows import operations
from workflows.models import ApiKey, ManualTask, Workflow

Target = tuple[str, dict[str, str]]


def retry() -> Target:
    return f"/admin/workflows/workflow/{rows.failed().pk}/retry/", {"why": "other", "reason": "Again."}


def run_now() -> Target:
    return f"/admin/workflows/workflow/{rows.retrying().pk}/run_now/", {"reason": "Payments is back."}


def cancel() -> Target:
    return f"/admin/workflows/workflow/{rows.retrying().pk}/cancel/", {"reason": "Asked for by phone."}


def run_again() -> Target:
    url = f"/admin/workflows/workflow/{rows.given_up().pk}/follow_up/"
    return url, {"step": "thank", "reason": "The address is right now."}


def acknowledge(row: Workflow | None = None) -> Target:
    row = Workflow.objects.get(pk=(row or rows.failed()).pk)
    (seen,) = operations.failures_left(row)
    return f"/admin/workflows/workflow/{row.pk}/acknowledge/", {"reason": "She was told.", "seen": str(seen)}


def acknowledge_given_up() -> Target:
    return acknowledge(rows.given_up())


def approve() -> Target:
    rows.waiting()
    return f"/admin/workflows/manualtask/{ManualTask.objects.get().pk}/decide/", {"decision": "approve", "reason": ""}


def reject() -> Target:
    rows.waiting()
    return f"/admin/workflows/manualtask/{ManualTask.objects.get().pk}/decide/", {"decision": "reject", "reason": "No."}


def claim() -> Target:
    rows.waiting()
    return f"/admin/workflows/manualtask/{ManualTask.objects.get().pk}/claim/", {}


def question() -> ManualTask:
    """A question of the engine's, to the team `operations`."""
    return rows.open_task(rows.waiting(task=False), task_type="keeps_dying", team="operations")


def answer() -> Target:
    return f"/admin/workflows/manualtask/{question().pk}/decide/", {"decision": "approve", "reason": ""}


def claim_question() -> Target:
    return f"/admin/workflows/manualtask/{question().pk}/claim/", {}


def assign(row: ManualTask | None = None) -> Target:
    colleague, _ = User.objects.get_or_create(username="colleague", is_staff=True, is_superuser=True)
    row = row or rows.open_task(rows.waiting(task=False))
    return f"/admin/workflows/manualtask/{row.pk}/assign/", {"to": str(colleague.pk), "reason": "You know him."}


def assign_question() -> Target:
    return assign(question())


def release() -> Target:
    """Of a task that whoever is logged in has claimed."""
    claimer = User.objects.latest("pk") if User.objects.exists() else User.objects.create(username="some-approver")
    rows.open_task(rows.waiting(task=False), assignee=claimer, claimed_at=timezone.now())
    return f"/admin/workflows/manualtask/{ManualTask.objects.get().pk}/release/", {}


def revoke() -> Target:
    key = ApiKey.objects.create(name="web", prefix="onr_ab", digest=b"1")
    return f"/admin/workflows/apikey/{key.pk}/revoke/", {"reason": "Leaked."}


def hold() -> Target:
    return f"/admin/workflows/service/{open_circuit().pk}/hold/", {"how_long": "60", "reason": "They migrate."}


def try_now() -> Target:
    return f"/admin/workflows/service/{open_circuit().pk}/try_now/", {"reason": "It is back."}


def chosen(*made: Workflow, **data: str) -> dict[str, Any]:
    return {"action": "retry", "_selected_action": [str(row.pk) for row in made], **data}

"""Once a workflow is emptied nothing can be done with it: so nothing is offered, anywhere, and every call says why."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.core.management import CommandError, call_command
from django.db import transaction
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_
from tests.workflows.admin.walk.stored import Watch
from workflows import operations
from workflows.console.manual_task import ManualTaskAdmin
from workflows.console.workflow_list import WorkflowAdmin
from workflows.doctor import replay
from workflows.errors import NotAllowed
from workflows.models import Effect, Event, FollowUp, ManualTask, Wait, Workflow
from workflows.operations import bulk, bulk_previews, corrections
from workflows.retention import content, erasing, holds

__all__ = ["as_"]

pytestmark = pytest.mark.django_db(transaction=True)

PAID = {"checkout": {"amount_cents": 14500, "currency": "USD"}}


def with_charge(state: str, make: Callable[..., Workflow] = rows.failed, **fields: Any) -> Workflow:
    row = make(workflow_type="onboarding", payload=PAID)
    call = {"step": "execute_checkout", "state": state, "result": {"charge_id": "ch_1"}, "attempt": 1, **fields}
    Effect.objects.create(workflow=row, idempotency_key=f"{row.key}:charge", **call)
    return row


def given_up() -> Workflow:
    row = rows.given_up()
    FollowUp.objects.filter(workflow=row).update(acknowledged_failure=FollowUp.objects.get(workflow=row).created_at)
    return row


def answered() -> Workflow:
    """A person has said that a call happened; then it failed, and nothing builds on the answer."""
    task = rows.open_task(
        row := rows.waiting(task=False), task_type="effect_in_doubt", about="reserve", team="operations"
    )
    boss, _ = User.objects.get_or_create(username="boss", is_superuser=True, is_staff=True)
    operations.approve(task.pk, user=boss, answer={})
    Effect.objects.filter(workflow=row).update(state="done", result={}, settled_by="boss")
    Wait.objects.filter(workflow=row).update(outcome="approved", result={"by": "boss"})
    Workflow.objects.filter(pk=row.pk).update(status="FAILED", completed_at=timezone.now())
    return row


def corrected() -> Workflow:
    asked = rows.asked_to_correct()
    corrections.close(asked.workflow_id, user=User.objects.get(username="bob-who-asks"), reason="No.", seen=[asked.pk])
    return Workflow.objects.get(pk=asked.workflow_id)


STATES: dict[str, Callable[[], Workflow]] = {
    "complete": rows.complete,
    "failed": rows.failed,
    "cancelled": rows.cancelled,
    "refunded": lambda: with_charge("undone"),
    "failed, and its charge stands": lambda: with_charge("done"),
    "a duplicate": lambda: rows.failed(last_error_code="duplicate_of"),
    "with a step that failed": rows.left_undone,
    "with a step that was given up": given_up,
    "with an answer about a call": answered,
    "with a correction that was withdrawn": corrected,
}


def emptied(make: Callable[[], Workflow]) -> Workflow:
    pk = make().pk
    with transaction.atomic():
        Workflow.objects.filter(pk=pk).update(completed_at=timezone.now() - timedelta(days=91))
        content.empty([pk])
    return Workflow.objects.with_state().get(pk=pk)


WHY = "What it was sent was deleted at"


def test_no_verb_is_offered_whatever_its_state_and_an_old_page_says_why(as_: Login) -> None:
    client = as_("superuser")
    for state, make in STATES.items():
        row = emptied(make)
        tasks = [f"manualtask/{pk}" for pk in ManualTask.objects.filter(workflow=row).values_list("pk", flat=True)]
        for each in (f"workflow/{row.pk}", *tasks):
            page = client.get(f"/admin/workflows/{each}/change/")
            assert (page.context["verbs"], page.context["barred"]) == ([], []), (state, each)
        for task in tasks:
            assert WHY in client.get(f"/admin/workflows/{task}/take_back/").content.decode()
    for verb in WorkflowAdmin.verbs:
        for ask in (client.get, client.post):
            answer = ask(f"/admin/workflows/workflow/{row.pk}/{verb.slug}/")
            assert (answer.status_code, [WHY in str(each) for each in get_messages(answer.wsgi_request)][-1]) == (
                302,
                True,
            )


# By the verb: what its page calls, or a command.
CALLS: dict[str, Callable[[Workflow, User], Any]] = {
    "retry": lambda row, user: operations.retry(row.pk, user=user),
    "run_now": lambda row, user: operations.run_now(row.pk, user=user),
    "cancel": lambda row, user: operations.cancel(row.pk, user=user, reason="So."),
    "correct": lambda row, user: corrections.ask(row.pk, user=user, reason="So.", values={}, seen=[]),
    "approve_correction": lambda row, user: corrections.approve(row.pk, user=user, values={}, seen=[]),
    "close_correction": lambda row, user: corrections.close(row.pk, user=user, reason="So.", seen=[]),
    "not_a_duplicate": lambda row, user: operations.not_a_duplicate(row.pk, user=user, reason="So."),
    "follow_up": lambda row, user: operations.follow_up(row.pk, user=user, step="thank"),
    "acknowledge": lambda row, user: operations.acknowledge(row.pk, user=user, reason="So.", seen=[]),
    "reveal": lambda row, user: operations.reveal(row.pk, user=user, fields=["patient.email"], reason="So."),
    "place_hold": lambda row, user: holds.place(
        workflow_id=row.pk, user=user, reason="So.", until=timezone.now() + timedelta(days=9)
    ),
    "ask_erasure": lambda row, user: erasing.ask(workflow_id=row.pk, user=user, reason="So."),
    "replay": lambda row, user: replay.replay(row.pk, rows.PARCEL),
    **{
        f"workflow {verb}": lambda row, user, verb=verb: call_command(
            "workflow", verb, str(row.pk), "--actor", user.username, "--reason", "So."
        )
        for verb in ("retry", "cancel", "run-now", "replay")
    },
}
OF_TASKS: dict[str, Callable[[ManualTask, User], Any]] = {
    "take_back": lambda task, user: operations.retract(task.pk, user=user, reason="So."),
    "assign": lambda task, user: operations.assign(task.pk, user=user, to=user.pk, seen=[]),
    "ask_lead": lambda task, user: operations.ask_lead(task.pk, user=user, reason="So."),
    "claim": lambda task, user: operations.claim_task(task.pk, user=user),
    "release": lambda task, user: operations.release_task(task.pk, user=user),
    "approve": lambda task, user: operations.approve(task.pk, user=user, answer={}),
    "reject": lambda task, user: operations.reject(task.pk, user=user, reason="So."),
}


# Which refuse it with another sentence.
OTHERWISE = {
    "close_correction": "There is no such correction.",
    "place_hold": "is not there, or what it was sent was deleted already.",
    "ask_erasure": "Nothing of this person is here, or it was deleted already.",
    **dict.fromkeys(OF_TASKS.keys() - {"take_back"}, "boss approved it already"),
}


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises((NotAllowed, CommandError)) as refused:
        call()
    return str(refused.value)


def test_every_call_is_refused_with_the_same_sentence_and_changes_nothing(db: None) -> None:
    assert {verb.slug for verb in (*WorkflowAdmin.verbs, *ManualTaskAdmin.verbs)} <= CALLS.keys() | OF_TASKS.keys()
    found = {name: emptied(make) for name, make in STATES.items()}
    boss = rows.corrector("boss")
    User.objects.filter(pk=boss.pk).update(is_superuser=True)
    boss = User.objects.get(pk=boss.pk)
    watch = Watch()
    told = {
        (name, state): refusal(lambda call=call, row=row: call(row, boss))  # type: ignore[misc]
        for name, call in CALLS.items()
        for state, row in found.items()
    }
    (task,) = ManualTask.objects.filter(workflow=found["with an answer about a call"])
    told |= {(name, ""): refusal(lambda call=call: call(task, boss)) for name, call in OF_TASKS.items()}  # type: ignore[misc]
    assert {each: why for each, why in told.items() if OTHERWISE.get(each[0], WHY) not in why} == {}
    assert watch.changed() == []


@pytest.mark.parametrize("verb", ["retry", "run_now", "cancel", "acknowledge"])
def test_the_preview_of_many_says_so_of_those_that_are_emptied(verb: str, db: None) -> None:
    for make in STATES.values():
        emptied(make)
    boss = User.objects.filter(is_superuser=True).get()
    made = bulk.choose(verb, Workflow.objects.order_by().values("pk"), user=boss, chosen_by="all of them")
    shown = bulk_previews.preview(made, boss)
    assert (shown.can, shown.cannot) == (0, [(len(STATES), "what it was sent was deleted")])


def test_the_children_of_an_emptied_workflow_are_not_started_again_when_its_retry_is_refused(db: None) -> None:
    parent = rows.cancelled()
    child = rows.cancelled(parent=parent, parent_wait="all", child_key="1")
    child.signals.create(name="cancel", source="engine", dedupe_key="1", payload={}, closed_at=timezone.now())
    boss = User.objects.create_superuser("boss")
    with transaction.atomic():
        content.empty([parent.pk])
    assert WHY in refusal(lambda: operations.retry(parent.pk, user=boss))
    assert not Event.objects.filter(workflow=child, kind="retried").exists()

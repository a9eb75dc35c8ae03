"""CANCEL: a person ends a workflow that nobody runs, and what it has done is undone."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction

from tests import engine
from tests.engine import define, kinds, last_attempt, make_due, submit, work, worker
from tests.workflows.cancelling import BY_PHONE, CHARGE, ask, flaky, nothing, request_cancellation, reread
from workflows import operations
from workflows.errors import NotAllowed
from workflows.models import Attempt, Effect, Event, ManualTask, State
from workflows.state import attempt_log

pytestmark = engine.ENGINE


@pytest.mark.parametrize("steps", [[nothing], [ask], [flaky]], ids=["queued", "waiting", "retrying"])
def test_what_nobody_runs_is_cancelled_here_and_now(ada: User, steps: list[Any]) -> None:
    define(steps)
    workflow = submit()
    if steps != [nothing]:
        work(workflow)
    assert operations.cancel(workflow.pk, user=ada, reason=f" {BY_PHONE} ") == "It is cancelled."
    workflow = reread(workflow)
    assert (workflow.status, workflow.state, workflow.waiting_for) == ("FAILED", State.CANCELLED, "")
    assert workflow.cancelled_at is not None
    assert workflow.last_error_message == f"Cancelled by ada: {BY_PHONE}"
    event = Event.objects.latest("id")
    assert (event.kind, event.actor, event.detail) == ("cancelled", "ada", {"reason": BY_PHONE})
    assert "vanished" not in kinds(workflow)
    make_due(workflow)
    assert not worker().process_next()


def test_what_it_has_done_is_undone(ada: User) -> None:
    define([CHARGE, ask])
    workflow = work(submit())
    assert operations.cancel(workflow.pk, user=ada, reason=BY_PHONE).endswith("reverses what it has done.")
    assert reread(workflow).state == State.COMPENSATING
    work(workflow)
    workflow = reread(workflow)
    assert (workflow.state, Effect.objects.get(undo=False).state) == (State.CANCELLED, "undone")
    assert kinds(workflow) == ["waiting", "cancelled", "compensating", "compensated"]


@pytest.mark.parametrize("has_effects", [False, True])
def test_the_attempt_of_a_worker_that_was_lost_with_its_host_is_closed_with_it(ada: User, has_effects: bool) -> None:
    """No other worker has claimed it since; and of one that has nothing to undo, none ever would."""
    define([CHARGE])
    workflow = submit()
    if has_effects:
        Effect.objects.create(workflow=workflow, step="charge", state="done", result={}, idempotency_key="k", attempt=1)
    attempt = Attempt.objects.create(workflow=workflow, number=1, worker="lost-host:1")
    operations.cancel(workflow.pk, user=ada, reason=BY_PHONE)
    told = last_attempt(workflow)
    assert (told.outcome, told.closed_at is not None) == ("vanished", True)
    assert kinds(workflow) == ["vanished", "cancelled", *["compensating"] * has_effects]
    assert Event.objects.get(kind="vanished").attempt == 1
    with transaction.atomic("attempt_log"):  # its supervisor lives, and knows better
        for statement in attempt_log.closing_statements(
            attempt.pk, "lost-host:1", Attempt.Outcome.KILLED, step="charge", how="SIGKILL"
        ):
            attempt_log.execute(*statement)
    assert kinds(workflow)[:2] == ["killed", "cancelled"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"status": "COMPLETE"}, "this one is complete"),
        ({"status": "FAILED"}, "this one is failed"),
        ({"compensating": True}, "already being reversed"),
    ],
)
def test_what_is_at_rest_or_being_undone_is_not_cancelled(ada: User, fields: dict[str, Any], why: str) -> None:
    workflow = submit(**fields)
    with pytest.raises(NotAllowed, match=why):
        operations.cancel(workflow.pk, user=ada, reason=BY_PHONE)
    assert not Event.objects.exists()


def test_it_needs_a_reason_and_the_permission(ada: User) -> None:
    workflow = submit()
    with pytest.raises(NotAllowed, match="Say why"):
        operations.cancel(workflow.pk, user=ada, reason="  ")
    with pytest.raises(PermissionDenied):
        operations.cancel(workflow.pk, user=User.objects.create_user("eve"), reason=BY_PHONE)
    with pytest.raises(NotAllowed, match="There is no workflow"):
        operations.cancel(0, user=ada, reason=BY_PHONE)


def test_a_question_of_a_child_that_is_cancelled_with_its_parent_takes_no_answer(ada: User) -> None:
    define([ask])
    parent = work(submit())
    child = work(submit(parent=parent, parent_wait="parcels", child_key="1"))
    operations.cancel(parent.pk, user=ada, reason=BY_PHONE)
    with pytest.raises(NotAllowed, match="ada has asked to cancel the workflow"):
        operations.approve(ManualTask.objects.get(workflow=child).pk, user=ada)


def test_a_request_of_the_last_run_does_not_cancel_the_next(ada: User) -> None:
    workflow = submit(status="FAILED")
    define([nothing])
    request_cancellation(workflow)
    operations.retry(workflow.pk, user=ada)
    assert work(workflow).status == "COMPLETE"


@pytest.mark.parametrize("deaths", [0, 3])
def test_what_keeps_dying_or_is_of_an_unknown_type_is_cancelled_all_the_same(deaths: int) -> None:
    """Before it is judged: nobody waits for its back-off; and rescheduled, the request would wake it in a loop."""
    define([nothing])
    workflow = submit() if deaths else submit(workflow_type="of the next release")
    for number in range(1, deaths + 1):
        workflow.attempts.create(number=number, outcome="killed", closed_at=workflow.created_at)  # type: ignore[attr-defined]
    request_cancellation(workflow)
    work(workflow)
    assert reread(workflow).state == State.CANCELLED

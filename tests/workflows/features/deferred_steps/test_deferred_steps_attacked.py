"""Deferred steps under attack: whatever one raises, leaves behind or waits for, its workflow stays as it is."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from time import sleep
from typing import Any

import pytest
from django.db import Error, connection, connections, transaction
from django.utils import timezone

from tests import engine
from tests.engine import define, kinds, last_attempt, submit, terminate, work
from tests.engine import worker as a_worker
from tests.workflows.letting_go import HOUR, LATER, Act, Confirmation, columns, come_due, follow_up, let_go
from tests.workflows.undoing import ada
from workflows.definition import Step
from workflows.effects import KnownEffect
from workflows.errors import ClaimLost, RetryableStepError, StepError, UnknownOutcome
from workflows.features.deferred_steps import operations as deferred_steps
from workflows.models import Attempt, Effect, FollowUp, ManualTask, Wait, Workflow
from workflows.waits import Child, require_approval, wait_for_children, wait_for_signal, wait_for_time

pytestmark = engine.ENGINE


def raising(error: BaseException) -> Act:
    def act(workflow: Workflow) -> None:
        raise error

    return act


def sql(*statements: str) -> Act:
    def act(workflow: Workflow) -> dict[str, Any]:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        return {}

    return act


def swallow(workflow: Workflow) -> dict[str, Any]:
    with suppress(Error):
        sql("SELECT 1 / 0")(workflow)
    return {}


def overstay(workflow: Workflow) -> None:
    sleep(5)


def a_neighbour_completes() -> bool:
    """Whether the worker's session serves the next workflow as before."""

    def step(*, workflow: Workflow, context: Any) -> None: ...

    define([step])
    return work(submit()).status == "COMPLETE"


# --- Whatever it raises -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "policy", "left"),
    [
        (raising(StepError("No.")), {}, "given up"),
        (raising(RetryableStepError("Not now.")), {}, "later"),
        (raising(UnknownOutcome("Silence.")), {"once": True, "key_ttl": HOUR}, "later"),
        (raising(ValueError("What?")), {"once": True, "key_ttl": HOUR}, "given up"),
        (raising(SystemExit(3)), {}, "given up"),
        (swallow, {}, "given up"),
        (sql("INSERT INTO auth_group_permissions (group_id, permission_id) VALUES (0, 0)"), {}, "given up"),  # deferred
        (overstay, {"timeout": 0.2, "once": True, "key_ttl": HOUR}, "later"),
        (lambda workflow: {"undeclared": 1}, {}, "given up"),
        (sql("COMMIT"), {}, "lost"),
    ],
)
def test_whatever_it_raises_its_workflow_stays_as_it_is(act: Act, policy: dict[str, Any], left: str) -> None:
    workflow, _ = let_go(act, **policy)
    before = columns(workflow)
    if left == "lost":
        with pytest.raises((ClaimLost, Error)):
            follow_up()
        connections.close_all()
    else:
        assert follow_up()
    assert columns(workflow) == before
    row = FollowUp.objects.get()
    assert (row.due_at is None) == (left == "given up")
    assert kinds(workflow)[-1] == {"given up": "follow_up_given_up", "later": "follow_up_failed"}.get(left, "completed")
    assert row.tries == (left == "lost")
    assert a_neighbour_completes()


def test_a_hook_that_raises_changes_nothing_of_what_was_done() -> None:
    def act(workflow: Workflow) -> dict[str, Any]:
        transaction.on_commit(lambda: 1 / 0)
        return {}

    workflow, _ = let_go(act)
    assert follow_up()
    assert not FollowUp.objects.exists()
    assert kinds(workflow)[-1] == "followed_up"
    assert last_attempt(workflow).outcome == "followed_up"
    assert a_neighbour_completes()


def test_a_session_that_is_left_as_another_role_is_ours_again(role: str) -> None:
    workflow, _ = let_go(sql(f"SET ROLE {role}"))
    assert follow_up()
    assert kinds(workflow)[-1] == "followed_up"
    assert a_neighbour_completes()


@pytest.mark.parametrize("alias", ["default", "attempt_log"])
def test_a_connection_that_is_lost_in_it_decides_nothing_and_the_next_worker_goes_on(alias: str) -> None:
    def act(workflow: Workflow) -> dict[str, Any]:
        if len(service.calls) == 2:
            terminate(alias)
        return {}

    workflow, service = let_go(act, once=True, key_ttl=HOUR)
    before = columns(workflow)
    this = a_worker()
    come_due()
    with pytest.raises((ClaimLost, Error)):
        this.process_from_sources()
    this.in_hand.close_lost(how="gone")
    assert columns(workflow) == before
    assert last_attempt(workflow).outcome == "lost"
    row = FollowUp.objects.get()
    assert row.tries == 1
    assert row.due_at
    assert row.due_at > timezone.now() + timedelta(seconds=30), (
        "it is rescheduled, so that it is not the next one again"
    )
    assert follow_up()
    assert not FollowUp.objects.exists()
    assert (Effect.objects.get().state, len(service.calls)) == ("done", 2), "its call is on the ledger"
    assert not Attempt.objects.filter(outcome="").exists()


# --- Calls in doubt, and calls that are done -----------------------------------------------------


def test_a_call_in_doubt_is_looked_up_and_that_it_is_too_early_is_no_failure() -> None:
    found: list[Any] = []

    def lookup(*, workflow: Workflow, context: Any, effect: KnownEffect) -> dict[str, Any] | None:
        return found[-1] if found else None

    def confirm(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        raise UnknownOutcome("Silence.")

    step = Step(confirm, best_effort=True, once=True, lookup=lookup, settle=3600, follow_up=LATER)
    define([step])
    workflow = work(submit())
    for _ in range(4):
        assert follow_up()
    row = FollowUp.objects.get()
    assert (row.failures, row.unavailable) == (0, 0)
    assert row.due_at
    assert row.due_at > timezone.now() + timedelta(minutes=50)
    found.append({})
    assert follow_up()
    assert not FollowUp.objects.exists()
    assert kinds(workflow)[-1] == "followed_up"


# --- It may not wait ----------------------------------------------------------------------------


def approve(workflow: Workflow) -> None:
    require_approval(workflow, "ask", question="May it?", facts={}, task_type="any", timeout=HOUR)


def start_children(workflow: Workflow) -> None:
    wait_for_children(workflow, "children", [Child("test", {})], timeout=HOUR)


@pytest.mark.parametrize(
    "act",
    [
        lambda workflow: wait_for_signal(workflow, "reply", "reply", timeout=HOUR),
        approve,
        start_children,
    ],
)
def test_what_it_may_not_wait_for_is_not_started(act: Act) -> None:
    """Else a person would be asked what nobody waits for, and children would be started."""
    workflow, _ = let_go(act)
    before = columns(workflow)
    assert follow_up()
    assert columns(workflow) == before
    assert kinds(workflow)[-1] == "follow_up_failed"
    assert "may not wait" in workflow.events.get(kind="follow_up_failed").detail["error_message"]  # type: ignore[attr-defined]
    assert not Wait.objects.exists()
    assert not ManualTask.objects.exists()
    assert Workflow.objects.count() == 1


def test_what_it_has_waited_for_already_is_known() -> None:
    def act(workflow: Workflow) -> dict[str, Any]:
        wait_for_time(workflow, "rest", timedelta(0))
        return {}

    service = Confirmation(act)

    def rest(*, workflow: Workflow, context: Any) -> None:
        wait_for_time(workflow, "rest", timedelta(0))

    define([rest, Step(service.step, best_effort=True, name="confirm", follow_up=LATER)])
    workflow = work(submit())
    assert workflow.status == "COMPLETE"
    assert follow_up()
    assert not FollowUp.objects.exists()


def test_a_deferred_step_is_given_up_at_the_first_time_and_runs_again_for_a_person() -> None:
    workflow, confirmation = let_go(sql("COMMIT"))
    for _ in range(2):
        come_due()
        a_worker().run(drain=True)
    assert (len(confirmation.calls), FollowUp.objects.get().due_at) == (2, None)
    assert kinds(workflow)[-1] == "follow_up_given_up"
    deferred_steps.follow_up(workflow.pk, user=ada(), step="confirm")
    a_worker().run(drain=True)
    assert len(confirmation.calls) == 3


def test_a_person_has_a_deferred_step_run_again_before_the_next_try_would_give_it_up() -> None:
    workflow, confirmation = let_go(sql("COMMIT"))
    come_due()
    a_worker().run(drain=True)
    deferred_steps.follow_up(workflow.pk, user=ada(), step="confirm")
    a_worker().run(drain=True)
    assert len(confirmation.calls) == 3

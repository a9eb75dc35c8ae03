"""Outages as a workflow meets them: patience, no calls, and parked. (The release: test_release.)"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests import engine
from tests.engine import again, define, kinds, submit, work
from tests.workflows.cancelling import reread
from tests.workflows.downstream import fail
from tests.workflows.features.outages.services import (
    SECOND,
    Downstream,
    circuit,
    open_circuit,
    parked,
    story,
    submit_and_work,
    trial_is_due,
)
from workflows.definition import Retry, Step
from workflows.engine.compensation import MAX_UNDO_FAILURES
from workflows.engine.retry_budget import OUTAGE_ATTEMPTS
from workflows.models import Effect, Event, ManualTask, Service, Workflow

pytestmark = [*engine.ENGINE, pytest.mark.usefixtures("a_vote_for_each_step", "cohorts_at_once")]

HOUR = timedelta(hours=1)
QUICK = Retry(max_attempts=2, base_delay=0.001, max_delay=0.001)


# --- Patience -----------------------------------------------------------------------------------------


def test_a_call_to_an_unavailable_service_is_retried_beyond_what_the_policy_allows(programs: Downstream) -> None:
    define([Step(programs.step, retry=QUICK)])
    programs.state = "down"
    workflow = again(again(work(submit())))
    assert (workflow.status, workflow.retry_count, workflow.unavailable_count) == ("PENDING", 3, 3)
    Workflow.objects.update(retry_count=OUTAGE_ATTEMPTS - 2, unavailable_count=OUTAGE_ATTEMPTS - 2)
    Service.objects.update(suspects=[])
    assert again(workflow).status == "PENDING"
    assert again(workflow).status == "FAILED", "a payload that is always answered with 500"


def test_what_it_has_failed_for_an_outage_is_none_of_what_the_policy_allows(programs: Downstream) -> None:
    define([Step(programs.step, retry=QUICK)])
    programs.state = "down"
    workflow = again(again(work(submit())))
    programs.state = "unreadable"
    workflow = again(workflow)
    assert (workflow.status, workflow.retry_count, workflow.unavailable_count) == ("PENDING", 4, 3)
    assert again(workflow).status == "FAILED", "the second of its own"


def enrolled_and_failed(programs: Downstream) -> Workflow:
    """A workflow whose call is to be undone."""
    define([Step(programs.step, once=True, undo=programs.undo, key_ttl=HOUR), fail], retry=QUICK)
    return work(submit())


def test_an_undo_has_the_same_patience(programs: Downstream) -> None:
    workflow = enrolled_and_failed(programs)
    programs.state = "down"
    for _ in range(MAX_UNDO_FAILURES + 2):
        workflow = again(workflow)
        Service.objects.update(suspects=[])
    assert workflow.invisible_until > workflow.created_at, "the next try is not at once"
    assert Event.objects.filter(kind="undo_failed").last().detail["max_attempts"] == OUTAGE_ATTEMPTS  # type: ignore[union-attr]
    assert not ManualTask.objects.exists()
    assert Effect.objects.get(undo=False).undo_unavailable == 5
    programs.state = "well"
    assert again(workflow).status == "FAILED"
    assert programs.refunds == [workflow.pk]


# --- Open ---------------------------------------------------------------------------------------------


def test_three_workflows_open_the_circuit_and_the_next_one_makes_no_call(programs: Downstream) -> None:
    define([programs.step])
    programs.state = "down"
    workflows = submit_and_work(3)
    Service.objects.update(since=timezone.now() - 3 * SECOND)  # spread over two seconds
    again(workflows[0])
    again(workflows[1])
    assert circuit().opened_at
    assert story() == ["opened"]
    calls = len(programs.calls)
    (late,) = submit_and_work()
    assert len(programs.calls) == calls
    assert reread(late).state == "parked"
    assert (late.parked_on, late.retry_count, late.last_error_code) == ("programs", 0, "service_unavailable")
    assert late.waiting_for == "the service programs, which is unavailable"
    assert 59 * 60 < (late.invisible_until - timezone.now()).total_seconds() <= 3600


def test_a_call_that_is_not_made_has_not_happened(programs: Downstream) -> None:
    parked(programs, steps=[Step(programs.step, once=True, key_ttl=HOUR)])
    assert Effect.objects.get().state == Effect.State.NOT_DONE


def test_unless_the_same_step_has_made_another_call_before(programs: Downstream) -> None:
    other = Downstream("payments")

    def two_calls(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        other.step(workflow=workflow, context=context)
        return programs.step(workflow=workflow, context=context)

    (workflow,) = parked(programs, steps=[Step(two_calls, once=True, key_ttl=HOUR)])
    assert Effect.objects.get().state == Effect.State.UNKNOWN
    assert workflow.parked_on == "programs"


def test_a_workflow_that_is_tried_and_parked_again_has_one_event(programs: Downstream) -> None:
    (workflow,) = parked(programs)
    parked_at = workflow.parked_at
    workflow = again(workflow)
    assert kinds(workflow) == ["parked"]
    assert workflow.parked_at == parked_at


def test_one_whose_hour_has_run_out_counts_a_failure(programs: Downstream) -> None:
    (workflow,) = parked(programs)
    Workflow.objects.update(parked_at=timezone.now() - timedelta(minutes=61))
    workflow = again(workflow)
    assert (workflow.retry_count, workflow.unavailable_count, workflow.parked_on) == (1, 1, "programs")
    assert workflow.parked_at
    assert (timezone.now() - workflow.parked_at).total_seconds() < 60, "its next hour has begun"
    Workflow.objects.update(
        parked_at=timezone.now() - timedelta(minutes=61),
        retry_count=OUTAGE_ATTEMPTS - 1,
        unavailable_count=OUTAGE_ATTEMPTS - 1,
    )
    assert again(workflow).status == "FAILED"


def test_one_that_is_parked_on_another_service_starts_its_hour_anew(programs: Downstream) -> None:
    """The hour for which the first was away was not the second one's."""
    payments = Downstream("payments")
    (workflow,) = parked(programs, steps=[programs.step, Step(payments.step, name="pay")])
    Workflow.objects.update(parked_at=timezone.now() - timedelta(minutes=61))
    Service.objects.all().delete()
    open_circuit("payments")
    workflow = again(workflow)
    assert (workflow.parked_on, workflow.retry_count, programs.calls) == ("payments", 0, [workflow.pk])
    assert workflow.parked_at
    assert (timezone.now() - workflow.parked_at).total_seconds() < 60


def test_while_a_person_holds_the_service_no_hour_counts(programs: Downstream) -> None:
    (workflow,) = parked(programs)
    Workflow.objects.update(parked_at=timezone.now() - timedelta(hours=30))
    Service.objects.update(held_by="ada", retry_at=timezone.now() + HOUR)
    workflow = again(workflow)
    assert (workflow.retry_count, workflow.parked_on) == (0, "programs")


def test_an_undo_is_parked_too_and_gets_its_person_after_as_many_hours(programs: Downstream) -> None:
    workflow = enrolled_and_failed(programs)
    open_circuit()
    workflow = again(workflow)
    assert (workflow.compensating, workflow.parked_on, programs.refunds) == (True, "programs", [])
    assert kinds(workflow)[-1] == "parked"
    assert Effect.objects.get(undo=False).error_code == "", "no failure of the undo"
    Workflow.objects.update(parked_at=timezone.now() - timedelta(minutes=61))
    Effect.objects.filter(undo=False).update(undo_unavailable=OUTAGE_ATTEMPTS - 1)
    workflow = again(workflow)
    again(workflow)
    assert ManualTask.objects.get().state == "open"


def test_a_best_effort_step_that_parks_is_not_let_go_for_an_outage(programs: Downstream) -> None:
    define([Step(programs.step, best_effort=True, parks=True)])
    programs.state = "down"
    (retried,) = submit_and_work()
    assert (retried.status, retried.retry_count, retried.parked_on) == ("PENDING", 1, "")
    open_circuit()
    retried = again(retried)
    assert retried.parked_on == "programs"
    programs.state = "refusing"
    trial_is_due()
    assert again(retried).status == "COMPLETE", "a declined card is not an outage"


@pytest.mark.parametrize(("state", "failures"), [("unreadable", 0), ("down", OUTAGE_ATTEMPTS - 1)])
def test_a_best_effort_step_that_parks_is_let_go_for_what_is_no_outage_or_when_patience_is_over(
    programs: Downstream, state: str, failures: int
) -> None:
    define([Step(programs.step, best_effort=True, parks=True)])
    programs.state = state
    assert work(submit(current_step="step", retry_count=failures, unavailable_count=failures)).status == "COMPLETE"


def test_a_step_is_not_started_without_a_service_that_it_needs(programs: Downstream) -> None:
    payments = Downstream("payments")
    (workflow,) = parked(
        programs, steps=[Step(payments.step, once=True, key_ttl=HOUR, name="pay", needs=("programs",)), programs.step]
    )
    assert payments.calls == []
    assert not Effect.objects.exists()
    assert workflow.parked_on == "programs"
    assert 23 * 3600 < (workflow.invisible_until - timezone.now()).total_seconds() <= 24 * 3600


def test_what_has_paid_before_does_not_need_it_any_more(programs: Downstream) -> None:
    payments = Downstream("payments")
    define([Step(payments.step, once=True, key_ttl=HOUR, name="pay", needs=("programs",)), programs.step])
    programs.state = "down"
    (workflow,) = submit_and_work()
    assert payments.calls == [workflow.pk]
    open_circuit(trial_in=-1)
    programs.state = "well"
    assert again(workflow).status == "COMPLETE", "it makes the trial"
    assert payments.calls == [workflow.pk]
    assert circuit().opened_at is None

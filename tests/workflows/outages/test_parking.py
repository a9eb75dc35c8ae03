"""Outages as a workflow meets them: patience, no calls, parked, and released when the service is back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests import engine
from tests.engine import again, another_connection, define, do_chores, kinds, make_due, submit, work, worker
from tests.workflows.outages.services import (
    SECOND,
    Downstream,
    circuit,
    open_circuit,
    story,
    submit_and_work,
    trial_is_due,
)
from workflows.compensation import MAX_UNDO_FAILURES
from workflows.definition import Retry, Step
from workflows.errors import StepError
from workflows.models import Effect, Event, ManualTask, Service, Workflow
from workflows.outages import parking
from workflows.outages.parking import PATIENCE

pytestmark = engine.ENGINE

QUICK = Retry(max_attempts=2, base_delay=0.001, max_delay=0.001)


@pytest.fixture
def programs() -> Downstream:
    return Downstream()


@pytest.fixture(autouse=True)
def a_vote_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.outages.calls.VOTE_EVERY", 0.0)


@pytest.fixture(autouse=True)
def cohorts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.outages.parking.PACE", timedelta(0))
    monkeypatch.setattr("workflows.outages.parking.JUST_DUE", timedelta(0))


def reread(workflow: Workflow) -> Workflow:
    return Workflow.objects.with_state().get(pk=workflow.pk)


def ends_at_once(*, workflow: Workflow, context: Any) -> None: ...


def due() -> int:
    return Workflow.objects.due().count()


# --- Patience -----------------------------------------------------------------------------------------


def test_a_call_to_an_unavailable_service_is_retried_beyond_what_the_policy_allows(programs: Downstream) -> None:
    define([Step(programs.step, retry=QUICK)])
    programs.state = "down"
    workflow = work(submit())
    for _ in range(PATIENCE - 2):
        workflow = again(workflow)
        Service.objects.update(suspects=[])
    assert (workflow.status, workflow.retry_count, workflow.unavailable_count) == ("PENDING", 44, 44)
    assert again(workflow).status == "FAILED", "a payload that is always answered with 500"


def test_what_it_has_failed_for_an_outage_is_none_of_what_the_policy_allows(programs: Downstream) -> None:
    define([Step(programs.step, retry=QUICK)])
    programs.state = "down"
    workflow = again(again(work(submit())))
    programs.state = "unreadable"
    workflow = again(workflow)
    assert (workflow.status, workflow.retry_count, workflow.unavailable_count) == ("PENDING", 4, 3)
    assert again(workflow).status == "FAILED", "the second of its own"


def test_an_undo_has_the_same_patience(programs: Downstream) -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        raise StepError("No.")

    define([Step(programs.step, once=True, undo=programs.undo, key_ttl=timedelta(hours=1)), fail], retry=QUICK)
    workflow = work(submit())
    programs.state = "down"
    for _ in range(MAX_UNDO_FAILURES + 2):
        workflow = again(workflow)
        Service.objects.update(suspects=[])
    assert workflow.invisible_until > workflow.created_at, "the next try is not at once"
    assert Event.objects.filter(kind="undo_failed").last().detail["max_attempts"] == PATIENCE  # type: ignore[union-attr]
    assert not ManualTask.objects.exists()
    assert Effect.objects.get(undo=False).undo_unavailable == 5
    programs.state = "well"
    assert again(workflow).status == "FAILED"
    assert programs.refunds == [workflow.pk]


def test_an_undo_whose_service_never_comes_back_gets_its_person(programs: Downstream) -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        raise StepError("No.")

    define([Step(programs.step, once=True, undo=programs.undo, key_ttl=timedelta(hours=1)), fail], retry=QUICK)
    workflow = work(submit())
    programs.state = "down"
    again(workflow)
    Effect.objects.filter(undo=False).update(undo_unavailable=PATIENCE - 1)
    again(workflow)
    again(workflow)
    assert ManualTask.objects.get().state == "open"


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
    define([Step(programs.step, once=True, key_ttl=timedelta(hours=1))])
    open_circuit()
    submit_and_work()
    assert Effect.objects.get().state == Effect.State.NOT_DONE


def test_unless_the_same_step_has_made_another_call_before(programs: Downstream) -> None:
    other = Downstream("payments")

    def two_calls(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        other.step(workflow=workflow, context=context)
        return programs.step(workflow=workflow, context=context)

    define([Step(two_calls, once=True, key_ttl=timedelta(hours=1))])
    open_circuit()
    (workflow,) = submit_and_work()
    assert Effect.objects.get().state == Effect.State.UNKNOWN
    assert workflow.parked_on == "programs"


def test_a_workflow_that_is_tried_and_parked_again_has_one_event(programs: Downstream) -> None:
    define([programs.step])
    open_circuit()
    (workflow,) = submit_and_work()
    parked_at = workflow.parked_at
    workflow = again(workflow)
    assert kinds(workflow) == ["parked"]
    assert workflow.parked_at == parked_at


def test_one_whose_hour_has_run_out_counts_a_failure(programs: Downstream) -> None:
    define([programs.step])
    open_circuit()
    (workflow,) = submit_and_work()
    Workflow.objects.update(parked_at=timezone.now() - timedelta(minutes=61))
    workflow = again(workflow)
    assert (workflow.retry_count, workflow.unavailable_count, workflow.parked_on) == (1, 1, "programs")
    assert workflow.parked_at
    assert (timezone.now() - workflow.parked_at).total_seconds() < 60, "its next hour has begun"
    Workflow.objects.update(
        parked_at=timezone.now() - timedelta(minutes=61), retry_count=PATIENCE - 1, unavailable_count=PATIENCE - 1
    )
    assert again(workflow).status == "FAILED"


def test_while_a_person_holds_the_service_no_hour_counts(programs: Downstream) -> None:
    define([programs.step])
    open_circuit()
    (workflow,) = submit_and_work()
    Workflow.objects.update(parked_at=timezone.now() - timedelta(hours=30))
    Service.objects.update(held_by="ada", retry_at=timezone.now() + timedelta(hours=1))
    workflow = again(workflow)
    assert (workflow.retry_count, workflow.parked_on) == (0, "programs")


def test_an_undo_is_parked_too_and_gets_its_person_after_as_many_hours(programs: Downstream) -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        raise StepError("No.")

    define([Step(programs.step, once=True, undo=programs.undo, key_ttl=timedelta(hours=1)), fail])
    workflow = work(submit())
    open_circuit()
    workflow = again(workflow)
    assert (workflow.compensating, workflow.parked_on, programs.refunds) == (True, "programs", [])
    assert kinds(workflow)[-1] == "parked"
    Workflow.objects.update(parked_at=timezone.now() - timedelta(minutes=61))
    Effect.objects.filter(undo=False).update(undo_unavailable=PATIENCE - 1)
    workflow = again(workflow)
    again(workflow)
    assert ManualTask.objects.get().state == "open"


def test_a_step_that_waits_for_nothing_else_is_passed_over(programs: Downstream) -> None:
    define([Step(programs.step, best_effort=True)])
    open_circuit()
    (workflow,) = submit_and_work()
    assert (workflow.status, programs.calls) == ("COMPLETE", [])


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
    assert again(retried).status == "COMPLETE", "a declined card is no outage"


def test_a_best_effort_step_that_parks_is_let_go_for_what_is_no_outage(programs: Downstream) -> None:
    define([Step(programs.step, best_effort=True, parks=True)])
    programs.state = "unreadable"
    assert work(submit()).status == "COMPLETE"


def test_a_best_effort_step_that_parks_is_let_go_when_patience_is_over(programs: Downstream) -> None:
    define([Step(programs.step, best_effort=True, parks=True)])
    programs.state = "down"
    (workflow,) = submit_and_work()
    Workflow.objects.update(retry_count=PATIENCE - 1, unavailable_count=PATIENCE - 1)
    assert again(workflow).status == "COMPLETE"


def test_a_step_is_not_begun_without_a_service_that_it_needs(programs: Downstream) -> None:
    payments = Downstream("payments")
    define([Step(payments.step, once=True, key_ttl=timedelta(hours=1), name="pay", needs=("programs",)), programs.step])
    open_circuit()
    (workflow,) = submit_and_work()
    assert payments.calls == []
    assert not Effect.objects.exists()
    assert workflow.parked_on == "programs"
    assert 23 * 3600 < (workflow.invisible_until - timezone.now()).total_seconds() <= 24 * 3600


def test_what_has_paid_before_does_not_need_it_any_more(programs: Downstream) -> None:
    payments = Downstream("payments")
    define([Step(payments.step, once=True, key_ttl=timedelta(hours=1), name="pay", needs=("programs",)), programs.step])
    programs.state = "down"
    (workflow,) = submit_and_work()
    assert payments.calls == [workflow.pk]
    open_circuit(trial_in=-1)
    programs.state = "well"
    assert again(workflow).status == "COMPLETE", "it makes the trial"
    assert payments.calls == [workflow.pk]
    assert circuit().opened_at is None


# --- Trials, and the release --------------------------------------------------------------------------


def test_nothing_is_released_before_a_trial_is_due(programs: Downstream) -> None:
    define([programs.step])
    open_circuit()
    submit_and_work(3)
    do_chores()
    assert due() == 0


def test_one_is_released_to_try_it_and_an_answer_lets_the_others_follow(programs: Downstream) -> None:
    define([programs.step])
    open_circuit()
    parked = submit_and_work(8)
    trial_is_due()
    do_chores()
    do_chores()
    assert due() == 1, "one at a time"
    assert work(parked[0]).status == "COMPLETE", "the one that was parked first"
    assert story() == ["closed"]
    released = []
    while Workflow.objects.filter(status="PENDING").exists():
        do_chores()
        released.append(due())
        for _ in range(released[-1]):
            assert worker().process_next()
    assert released == [1, 2, 4]
    assert len(programs.calls) == 8


def test_a_trial_in_vain_sends_it_to_the_end_and_counts_nothing(programs: Downstream) -> None:
    define([programs.step])
    open_circuit()
    first, second = submit_and_work(2)
    programs.state = "down"
    trial_is_due()
    do_chores()
    first = work(first)
    assert (first.parked_on, first.retry_count, len(programs.calls)) == ("programs", 0, 1)
    assert circuit().opened_at
    assert circuit().cool_off == 10
    do_chores()
    assert due() == 0
    trial_is_due()
    do_chores()
    work(second)
    assert programs.calls == [first.pk, second.pk], "the oldest may be a bad payload"


def test_a_service_on_which_nobody_is_parked_is_tried_by_one_worker(programs: Downstream) -> None:
    define([Step(programs.step, best_effort=True)])
    open_circuit(trial_in=-1)
    Service.objects.update(trial_until=timezone.now() + 10 * SECOND)
    submit_and_work(2)
    assert programs.calls == []
    Service.objects.update(trial_until=None)
    submit_and_work(2)
    assert len(programs.calls) == 2, "the trial, and the one after it"
    assert circuit().opened_at is None


def test_a_worker_that_tries_it_may_call_it_twice_in_a_step(programs: Downstream) -> None:
    def twice(*, workflow: Workflow, context: Any) -> None:
        programs.call(workflow)
        programs.call(workflow)

    define([twice])
    open_circuit(trial_in=-1)
    (workflow,) = submit_and_work()
    assert (workflow.status, len(programs.calls)) == ("COMPLETE", 2)


def test_a_trial_that_ends_without_a_call_closes_it(programs: Downstream) -> None:
    """Its workflow is cancelled, has expired, or is of a release that calls the service no more."""
    define([programs.step])
    open_circuit()
    submit_and_work(3)
    define([ends_at_once])
    trial_is_due()
    do_chores()
    assert worker().process_next()
    do_chores()
    assert circuit().opened_at is None
    assert story() == ["closed"]
    assert circuit().failed == 4, "one more vote opens it again"
    assert due() == 1


def closed_circuit(*, cohort: int, failed: timedelta | None = None) -> None:
    """It was closed a minute ago, and a cohort released just now; a call was in vain so long after that."""
    now = timezone.now()
    released = {"closed_at": now - 60 * SECOND, "cohort": cohort, "released_at": now - SECOND}
    failed_at = now - SECOND + failed if failed is not None else None
    Service.objects.update(opened_at=None, retry_at=None, since=None, failed_at=failed_at, **released)


@pytest.mark.parametrize(
    ("failed", "next_cohort"),
    [
        (None, 16),
        (-70 * SECOND, 16),  # before it was closed
        (SECOND / 2, 7),
        (-SECOND, 10),  # before the last cohort
    ],
)
def test_a_cohort_is_an_eighth_smaller_after_a_call_in_vain_and_then_grows_slowly(
    programs: Downstream, failed: timedelta | None, next_cohort: int
) -> None:
    define([programs.step])
    open_circuit()
    submit_and_work(17)
    closed_circuit(cohort=8, failed=failed)
    do_chores()
    assert due() == next_cohort


def test_a_cohort_is_spread_over_a_second_and_the_next_one_comes_after_it(
    programs: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "PACE", 100 * SECOND)
    monkeypatch.setattr(parking, "JUST_DUE", 50 * SECOND)
    define([programs.step])
    open_circuit()
    submit_and_work(8)
    closed_circuit(cohort=2)
    Service.objects.update(released_at=timezone.now() - 101 * SECOND)
    do_chores()
    do_chores()
    now = timezone.now()
    soon = Workflow.objects.filter(invisible_until__lt=now + 1000 * SECOND).order_by("invisible_until")
    assert [round((each.invisible_until - now).total_seconds()) for each in soon] == [0, 25, 50, 75]


def test_the_release_is_told_of_each_call_in_vain_of_what_it_has_released(
    programs: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has voted in this second, that it was answered, has no other vote."""
    monkeypatch.setattr("workflows.outages.calls.VOTE_EVERY", 1000.0)
    define([programs.step])
    open_circuit()
    submit_and_work(2)
    closed_circuit(cohort=2)
    Service.objects.update(since=timezone.now())
    Workflow.objects.update(invisible_until=timezone.now())
    this = worker()
    assert this.process_next()
    programs.state = "down"
    assert this.process_next()
    service = circuit()
    assert (service.answered, service.failed) == (1, 5), "one vote, and no other"
    assert service.failed_at
    assert service.released_at
    assert service.failed_at > service.released_at


def test_what_is_parked_on_a_service_without_a_row_is_released() -> None:
    row = submit(parked_on="gone", parked_at=timezone.now(), invisible_until=timezone.now() + timedelta(minutes=50))
    do_chores()
    assert reread(row).invisible_until <= timezone.now()


def test_a_cohort_that_no_worker_takes_up_holds_up_the_others_for_a_minute(programs: Downstream) -> None:
    define([programs.step])
    open_circuit()
    elsewhere = submit_and_work()[0]
    submit_and_work(2)
    Workflow.objects.filter(pk=elsewhere.pk).update(queue="nobody's")
    Service.objects.update(opened_at=None, since=None)
    do_chores()
    do_chores()
    assert due() == 1
    Workflow.objects.filter(pk=elsewhere.pk).update(invisible_until=timezone.now() - timedelta(seconds=61))
    do_chores()
    assert due() == 3


def test_the_names_are_found_one_after_the_other() -> None:
    for name in ("b", "a", "b", "", "c"):
        submit(parked_on=name)
    submit(parked_on="done", status="COMPLETE", completed_at=timezone.now())
    assert parking.names() == ["a", "b", "c"]


def test_no_worker_waits_for_a_services_row(programs: Downstream) -> None:
    define([programs.step])
    open_circuit(trial_in=-1)
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_service FOR UPDATE")
        (workflow,) = submit_and_work()
        do_chores()
    assert (workflow.parked_on, programs.calls) == ("programs", [])
    make_due(workflow)
    assert work(workflow).status == "COMPLETE"

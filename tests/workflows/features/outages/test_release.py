"""A parked workflow is released: to try its service, and in release batches when that is back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests import engine
from tests.clock import standing_still
from tests.engine import another_connection, define, do_maintenance, make_due, submit, work, worker
from tests.workflows.cancelling import reread
from tests.workflows.features.outages.services import (
    SECOND,
    Downstream,
    circuit,
    due,
    ends_at_once,
    open_circuit,
    parked,
    story,
    submit_and_work,
    trial_is_due,
)
from workflows.definition import Step
from workflows.features.outages import parking
from workflows.models import Chore, Service, Workflow
from workflows.state.parking import names

pytestmark = [*engine.ENGINE, pytest.mark.slow, pytest.mark.usefixtures("a_vote_for_each_step", "cohorts_at_once")]


def test_one_is_released_to_try_it_and_an_answer_lets_the_others_follow(programs: Downstream) -> None:
    first, *_ = parked(programs, 8)
    trial_is_due()
    do_maintenance()
    do_maintenance()
    assert due() == 1, "one at a time"
    assert work(first).status == "COMPLETE", "the one that was parked first"
    assert story() == ["closed"]
    released = []
    while Workflow.objects.filter(status="PENDING").exists():
        do_maintenance()
        released.append(due())
        for _ in range(released[-1]):
            assert worker().process_next()
    assert released == [1, 2, 4]
    assert len(programs.calls) == 8


def test_a_trial_in_vain_sends_it_to_the_end_and_counts_nothing(programs: Downstream) -> None:
    first, second = parked(programs, 2)
    programs.state = "down"
    trial_is_due()
    do_maintenance()
    first = work(first)
    assert (first.parked_on, first.retry_count, len(programs.calls)) == ("programs", 0, 1)
    assert circuit().opened_at
    assert circuit().cool_off == 10
    do_maintenance()
    assert due() == 0
    trial_is_due()
    do_maintenance()
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

    (workflow,) = parked(programs, steps=[twice], trial_in=-1)
    assert (workflow.status, len(programs.calls)) == ("COMPLETE", 2)


def test_a_trial_that_ends_without_a_call_closes_it(programs: Downstream) -> None:
    """Its workflow is cancelled, has expired, or is of a release that calls the service no more."""
    parked(programs, 3)
    define([ends_at_once])
    trial_is_due()
    do_maintenance()
    assert worker().process_next()
    do_maintenance()
    assert circuit().opened_at is None
    assert story() == ["closed"]
    assert circuit().failed == 4, "one more vote opens it again"
    assert due() == 1


def closed_circuit(*, cohort: int, failed: timedelta | None = None, **fields: Any) -> None:
    """It was closed a minute ago, and a release batch released just now; a call was in vain so long after that."""
    now = timezone.now()
    released = {"closed_at": now - 60 * SECOND, "cohort": cohort, "released_at": now - SECOND, **fields}
    failed_at = now - SECOND + failed if failed is not None else None
    Service.objects.update(opened_at=None, retry_at=None, since=None, failed_at=failed_at, **released)


@pytest.mark.parametrize(
    ("failed", "next_cohort"),
    [
        (None, 16),
        (-70 * SECOND, 16),  # before it was closed
        (SECOND / 2, 7),
        (-SECOND, 10),  # before the last release batch
    ],
)
def test_a_release_batch_is_an_eighth_smaller_after_a_call_in_vain_and_then_grows_slowly(
    programs: Downstream, failed: timedelta | None, next_cohort: int
) -> None:
    parked(programs, 17)
    closed_circuit(cohort=8, failed=failed)
    do_maintenance()
    assert due() == next_cohort


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch, cohorts_at_once: None) -> None:
    monkeypatch.setattr(parking, "PACE", 100 * SECOND)
    monkeypatch.setattr(parking, "JUST_DUE", 50 * SECOND)


def test_a_release_batch_is_spread_over_a_second_and_the_next_one_comes_after_it(
    programs: Downstream, slowly: None
) -> None:
    parked(programs, 8)
    closed_circuit(cohort=2, released_at=timezone.now() - 101 * SECOND)
    do_maintenance()
    do_maintenance()
    soon = Workflow.objects.filter(invisible_until__lt=timezone.now() + 1000 * SECOND).order_by("invisible_until")
    first = soon[0].invisible_until
    assert [round((each.invisible_until - first).total_seconds()) for each in soon] == [0, 25, 50, 75]


def test_a_clock_that_was_set_back_holds_up_no_release_batch(programs: Downstream, slowly: None) -> None:
    parked(programs, 8)
    closed_circuit(cohort=1, released_at=timezone.now() + timedelta(hours=1))
    do_maintenance()
    assert Workflow.objects.filter(invisible_until__lt=timezone.now() + 100 * SECOND).count() == 2


def test_the_next_release_batch_does_not_wait_for_what_has_just_become_due_once_the_service_is_back(
    programs: Downstream, slowly: None
) -> None:
    """The workers come by once a second: what a worker is about to take up is as good as taken up."""
    last, *_ = parked(programs, 8)
    closed_circuit(cohort=1)

    def released_when_the_last_has_been_due_for(seconds: int) -> int:
        now = timezone.now()
        Service.objects.update(released_at=now - 101 * SECOND)
        Workflow.objects.filter(pk=last.pk).update(invisible_until=now - seconds * SECOND)
        do_maintenance()
        return Workflow.objects.exclude(pk=last.pk).filter(invisible_until__lt=now + 1000 * SECOND).count()

    assert released_when_the_last_has_been_due_for(51) == 0
    assert released_when_the_last_has_been_due_for(1) == 2


def test_the_release_is_told_of_each_call_in_vain_of_what_it_has_released(
    programs: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has voted in this second, that it was answered, has no other vote."""
    monkeypatch.setattr("workflows.features.outages.calls.VOTE_EVERY", 1000.0)
    parked(programs, 2)
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
    do_maintenance()
    assert reread(row).invisible_until <= timezone.now()


def test_a_release_batch_that_no_worker_takes_up_holds_up_the_others_for_a_minute(programs: Downstream) -> None:
    elsewhere, *_ = parked(programs, 3)
    Workflow.objects.filter(pk=elsewhere.pk).update(queue="nobody's")
    Service.objects.update(opened_at=None, since=None)
    do_maintenance()
    do_maintenance()
    assert due() == 1
    Workflow.objects.filter(pk=elsewhere.pk).update(invisible_until=timezone.now() - timedelta(seconds=61))
    do_maintenance()
    assert due() == 3


@pytest.mark.parametrize(("parked_on", "rest"), [("", SECOND), ("insurance", SECOND / 5)])
def test_who_looks_for_what_is_parked_rests_longer_where_nothing_is(
    monkeypatch: pytest.MonkeyPatch, parked_on: str, rest: timedelta
) -> None:
    standing_still(monkeypatch, "workflows.engine.loop", "workflows.engine.maintenance")
    submit(parked_on=parked_on)
    before = timezone.now()
    worker().run_maintenance()
    assert before + rest <= Chore.objects.get(pk="release parked").due_at <= timezone.now() + rest


def test_the_names_are_found_one_after_the_other() -> None:
    for name in ("b", "a", "b", "", "c"):
        submit(parked_on=name)
    submit(parked_on="done", status="COMPLETE", completed_at=timezone.now())
    assert names() == ["a", "b", "c"]


def test_no_worker_waits_for_a_services_row(programs: Downstream) -> None:
    define([programs.step])
    open_circuit(trial_in=-1)
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_service FOR UPDATE")
        (workflow,) = submit_and_work()
        do_maintenance()
    assert (workflow.parked_on, programs.calls) == ("programs", [])
    make_due(workflow)
    assert work(workflow).status == "COMPLETE"

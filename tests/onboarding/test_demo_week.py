"""The week before the demo: its plan, its second type, and what is moved back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from onboarding.context import OnboardingContext
from onboarding.demo import week
from onboarding.demo.moving import MOVING, moves, save_new_address
from tests.workflows import rows
from workflows.errors import StepError
from workflows.models import Event, State, Workflow
from workflows.wording import is_explained


def test_its_submissions_come_in_order_within_the_last_week_and_none_during_the_hold() -> None:
    now = timezone.now()
    planned = week.Week.plan(60, 7, now)
    assert len(planned.samples) == len({each.idempotency_key for each in planned.samples}) == len(planned.at) == 90
    assert list(planned.at) == sorted(planned.at)
    assert now - week.LASTS < planned.at[0] < now - timedelta(days=6) < planned.at[-1] < now
    assert not [at for at in planned.at if planned.held[0] <= at < planned.held[1]]
    refused = [planned.at[[each.idempotency_key for each in planned.samples].index(key)] for key in planned.refused]
    assert max(refused) - min(refused) < timedelta(minutes=30) < planned.held[0] - min(refused) + timedelta(minutes=10)
    assert planned.samples == week.Week.plan(60, 7, now).samples
    assert not {*planned.refused} & {each.idempotency_key for each in week.Week.plan(60, 8, now).samples}


def test_the_code_for_which_some_moves_fail_is_nobodys_fault_but_ours() -> None:
    assert not is_explained(MOVING.wording, week.CAUSE.code)
    assert all(MOVING.wording.steps[step.name].title for step in MOVING.steps)


def test_an_address_that_is_no_address_is_refused_before_any_call() -> None:
    (sample,) = moves(1, 4)
    sample.payload["address"] = {"line1": "12 Mill Lane"}
    with pytest.raises(StepError) as refused:
        save_new_address(workflow=Workflow(payload=sample.payload), context=OnboardingContext())
    assert refused.value.code == "invalid_payload"


@pytest.mark.django_db
def test_all_of_a_workflow_is_moved_back_and_what_people_did_some_time_later() -> None:
    now = timezone.now()
    row, other = (rows.failed(completed_at=now - timedelta(minutes=2)) for _ in range(2))
    created = row.created_at
    rows.event(row, "failed", at=now - timedelta(minutes=2))
    rows.event(row, "acknowledged", at=now - timedelta(minutes=1), actor="ada")
    back, later = timedelta(days=3), timedelta(hours=1)
    for model in week._of_workflows():
        week._move(model, [(row.pk, back, now - timedelta(minutes=1), later)])
    row.refresh_from_db()
    assert (row.created_at, row.completed_at) == (created - back, now - timedelta(minutes=2) - back)
    at = dict(Event.objects.filter(workflow=row).values_list("kind", "at"))
    assert at["acknowledged"] - at["failed"] == timedelta(minutes=1) + later
    assert Workflow.objects.with_state().get(pk=other.pk).state == State.FAILED
    assert Workflow.objects.get(pk=other.pk).completed_at == other.completed_at

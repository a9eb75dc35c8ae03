"""Run again: a person has a failed best-effort step of a complete workflow done by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tests import engine
from tests.engine import define, kinds, submit, work, worker
from tests.workflows.features.outages.services import Downstream
from workflows.definition import Retry, Step
from workflows.errors import NotAllowed, StepError, UnknownOutcome
from workflows.features.deferred_steps import operations as deferred_steps
from workflows.models import Effect, Event, FollowUp, Workflow

pytestmark = engine.ENGINE

HOUR = timedelta(hours=1)


@pytest.fixture
def service() -> Downstream:
    return Downstream("messages")


def confirm_with(service: Downstream, **policy: Any) -> Step:
    return Step(service.step, **{"best_effort": True, "once": True, "key_ttl": HOUR, "name": "confirm", **policy})


def passed_over(service: Downstream, state: str = "refusing", **policy: Any) -> Workflow:
    """A complete workflow whose confirmation failed, and is not followed up unless the policy says so."""
    service.state = state
    define([confirm_with(service, **policy)])
    workflow = work(submit())
    assert workflow.status == "COMPLETE"
    return workflow


def run_again(workflow: Workflow, user: User, **arguments: Any) -> None:
    deferred_steps.follow_up(workflow.pk, **{"user": user, "step": "confirm", **arguments})


def test_what_was_refused_is_done_once_by_the_next_worker(service: Downstream, boss: User) -> None:
    workflow = passed_over(service)
    service.state = "well"
    run_again(workflow, boss, reason=" The address is right now. ")
    asked = Event.objects.filter(workflow=workflow).latest("id")
    assert (asked.kind, asked.actor, asked.step) == ("follow_up_asked", "boss", "confirm")
    assert asked.detail == {"reason": "The address is right now."}
    assert worker().process_from_sources()
    assert len(service.calls) == 2
    assert Effect.objects.get().state == "done"
    assert kinds(workflow)[-1] == "followed_up"
    assert not FollowUp.objects.exists()


def test_a_step_that_says_nothing_of_deferred_steps_is_retried_by_the_default_policy_and_given_up(
    service: Downstream, boss: User
) -> None:
    workflow = passed_over(service)
    run_again(workflow, boss)
    service.state = "unreadable"
    for _ in range(10):
        FollowUp.objects.update(due_at=timezone.now())
        assert worker().process_from_sources()
    assert FollowUp.objects.get().due_at is None
    assert kinds(workflow).count("follow_up_failed") == 9
    run_again(workflow, boss)
    row = FollowUp.objects.get()
    assert (row.failures, row.asked_by) == (0, "boss"), "it begins again"
    assert row.due_at


def test_one_that_is_to_be_tried_later_is_tried_now(service: Downstream, boss: User) -> None:
    workflow = passed_over(service, "down", follow_up=Retry(base_delay=3600))
    assert not worker().process_from_sources()
    service.state = "well"
    run_again(workflow, boss)
    assert worker().process_from_sources()
    assert not FollowUp.objects.exists()


def refusal(workflow: Workflow, user: User, **arguments: Any) -> str:
    before = list(FollowUp.objects.values()), Event.objects.count()
    with pytest.raises(NotAllowed) as refused:
        run_again(workflow, user, **arguments)
    assert (list(FollowUp.objects.values()), Event.objects.count()) == before
    return str(refused.value)


def test_it_is_refused_once_it_is_due_and_when_it_has_been_done(service: Downstream, boss: User) -> None:
    workflow = passed_over(service)
    service.state = "well"
    run_again(workflow, boss)
    assert refusal(workflow, boss) == "“Confirm” is due already: a worker takes it as soon as one is free."
    assert worker().process_from_sources()
    assert refusal(workflow, boss) == "“Confirm” has not failed, or was done since."
    assert refusal(workflow, boss, step="another") == "This release does not know its type, or the step."


def fail(*, workflow: Workflow, context: Any) -> None:
    raise StepError("No.")


def test_of_a_failed_workflow_it_is_refused_for_a_retry_does_all_of_it(service: Downstream, boss: User) -> None:
    service.state = "refusing"
    define([confirm_with(service), fail])
    workflow = work(submit())
    told = "Only a complete workflow has a step run again by itself; this one is failed."
    assert refusal(workflow, boss) == told


def test_a_step_that_this_release_does_not_have_is_not_run(service: Downstream, boss: User) -> None:
    workflow = passed_over(service)
    define([confirm_with(service, name="another")])
    assert refusal(workflow, boss) == "This release does not know its type, or the step."


@pytest.mark.parametrize(
    ("policy", "key_age", "may"),
    [
        ({"key_ttl": 2 * HOUR}, HOUR, True),
        ({"key_ttl": HOUR}, 2 * HOUR, False),
        ({"key_ttl": None}, timedelta(0), False),
        ({"key_ttl": None, "lookup": fail}, 2 * HOUR, True),
    ],
)
def test_a_call_in_doubt_that_nothing_can_settle_is_not_started(
    policy: dict[str, Any], key_age: timedelta, may: bool, boss: User
) -> None:
    def confirm(*, workflow: Workflow, context: Any) -> None:
        raise UnknownOutcome("Silence.")

    define([Step(confirm, best_effort=True, once=True, **policy)])
    workflow = work(submit())
    Effect.objects.update(first_begun_at=timezone.now() - key_age)
    if may:
        run_again(workflow, boss)
    else:
        told = "Whether the call of “Confirm” has happened cannot be told any more: it would be given up again."
        assert refusal(workflow, boss) == told

"""Waiting for a time to pass, from inside a step."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests import engine
from tests.engine import define, kinds, make_due, submit, work, worker
from tests.workflows.waits.approvals import boss
from workflows import operations
from workflows.models import Wait, Workflow
from workflows.waits import wait_for_time

pytestmark = engine.ENGINE


def cool_down(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    wait_for_time(workflow, "cool-down", timedelta(minutes=10))
    return {"text": "cooled"}


def test_it_goes_on_when_the_time_has_passed_and_not_before() -> None:
    define([cool_down])
    workflow = work(submit())
    assert (workflow.status, workflow.waiting_for) == ("PENDING", "a time that was set (cool-down)")
    assert workflow.invisible_until - timezone.now() == pytest.approx(timedelta(minutes=10), abs=timedelta(seconds=2))
    assert worker().process_next() is False
    engine.expire(workflow)
    workflow = work(workflow)
    assert (workflow.status, workflow.context["text"]) == ("COMPLETE", "cooled")
    assert Wait.objects.get().outcome == "elapsed"


def test_run_early_it_waits_on_to_the_same_moment() -> None:
    define([cool_down])
    workflow = work(submit())
    deadline = workflow.invisible_until
    for _ in range(3):
        operations.run_now(workflow.pk, user=boss())
        workflow = work(workflow)
        assert workflow.invisible_until == deadline
    make_due(workflow)
    assert work(workflow).status == "PENDING"


def test_no_time_at_all_is_over_at_once() -> None:
    def pause(*, workflow: Workflow, context: Any) -> None:
        wait_for_time(workflow, "pause", timedelta(0))

    define([pause])
    assert work(submit()).status == "COMPLETE"


def test_a_time_that_has_passed_while_the_workflow_was_cancelled_is_over() -> None:
    define([cool_down])
    workflow = work(submit())
    operations.cancel(workflow.pk, user=boss(), reason="a mistake")
    engine.expire(workflow)
    operations.retry(workflow.pk, user=boss())
    assert work(workflow).status == "COMPLETE"


def test_the_history_tells_of_each_of_two_that_follow_each_other_once() -> None:
    def pause_twice(*, workflow: Workflow, context: Any) -> None:
        wait_for_time(workflow, "first", timedelta(hours=1))
        wait_for_time(workflow, "second", timedelta(hours=1))

    define([pause_twice])
    workflow = work(submit())
    for _ in range(2):
        make_due(workflow)
        work(workflow)
    assert kinds(workflow) == ["waiting"]
    engine.expire(workflow)
    work(workflow)
    assert kinds(workflow) == ["waiting", "waiting"]

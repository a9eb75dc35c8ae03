"""A service that is down, limited or slow, played where the author's client calls it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from workflows import testing
from workflows.definition import Step, WorkflowDefinition
from workflows.models import Workflow
from workflows.outages import call_to

pytestmark = testing.databases()

SENT: list[int] = []


class Context(BaseModel):
    pass


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    SENT.clear()


def send(*, workflow: Workflow, context: Any) -> None:
    for number in (1, 2):
        with call_to("letters"):
            SENT.append(number)


LETTERS = WorkflowDefinition(name="letters", steps=[Step(send, timeout=0.5)], context_class=Context)


def test_the_first_calls_are_in_vain_more_often_than_any_policy_allows() -> None:
    with testing.unavailable("letters", calls=12):
        run = testing.run(LETTERS, {})
    assert (run.status, run.workflow.unavailable_count, SENT) == ("COMPLETE", 0, [1, 2])
    assert run.workflow.events.filter(kind="retry_scheduled").count() == 12


@pytest.mark.slow
def test_an_outage_without_an_end_fails_the_workflow_and_sends_nothing() -> None:
    with testing.unavailable("letters"):
        run = testing.run(LETTERS, {})
    assert (run.status, run.workflow.last_error_code, SENT) == ("FAILED", "made_unavailable", [])


@pytest.mark.slow
def test_a_limited_service_takes_so_many_calls() -> None:
    with testing.limited("letters", calls=3):
        run = testing.run(LETTERS, {})
    assert (run.status, SENT) == ("COMPLETE", [1, 2])
    with testing.limited("letters", calls=1):
        run = testing.run(LETTERS, {})
    assert (run.status, SENT) == ("FAILED", [1, 2, 1])


def test_a_step_may_run_out_of_time_at_a_slow_one() -> None:
    with testing.slow("letters", seconds=0.01):
        run = testing.run(LETTERS, {})
    assert (run.status, run.workflow.events.count()) == ("COMPLETE", 1)
    with testing.slow("letters", seconds=30, calls=1):
        run = testing.run(LETTERS, {})
    retried = run.workflow.events.get(kind="retry_scheduled")
    assert (run.status, retried.detail["error_class"]) == ("COMPLETE", "workflows.timeouts.StepTimeout")


def test_it_is_well_afterwards() -> None:
    with testing.unavailable("letters"), testing.unavailable("letters", calls=0):
        assert testing.run(LETTERS, {}).status == "COMPLETE", "the inner one counts"
    assert testing.run(LETTERS, {}).status == "COMPLETE"


def test_one_that_nothing_calls_takes_nothing_from_others_and_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="No call to 'leters' was made"), testing.unavailable("leters"):
        assert testing.run(LETTERS, {}).status == "COMPLETE"

"""It is too early to tell whether a call has happened: that is not a failure, and spends no attempt of the step."""

from __future__ import annotations

from typing import Any

import pytest

from tests import engine
from tests.engine import again, define, submit
from tests.workflows.downstream import Downstream, call_step
from workflows.definition import Retry
from workflows.errors import UnknownOutcome
from workflows.models import Workflow
from workflows.postgres.statements import execute

pytestmark = engine.ENGINE


def settle() -> None:
    """The call can no longer be on its way."""
    execute("UPDATE workflows_effect SET begun_at = begun_at - interval '1 hour'")


def times_out(service: Downstream, **policy: Any) -> Workflow:
    """A workflow whose calls never happen, and never say so."""
    service.errors = [UnknownOutcome("no answer") for _ in range(20)]
    service.found = [None] * 40
    define([call_step(service, lookup=service.lookup, settle=60, **policy)])
    return submit()


@pytest.mark.parametrize("most", [1, 3])
def test_a_step_whose_calls_time_out_makes_as_many_as_its_policy_says(service: Downstream, most: int) -> None:
    workflow = times_out(service, retry=Retry(max_attempts=most, base_delay=0, jitter_factor=0))
    counts = []
    for _ in range(most - 1):
        workflow = again(workflow)
        counts.append(workflow.retry_count)
        workflow = again(workflow)  # too early
        assert (workflow.status, workflow.last_error_code) == ("PENDING", "unsettled")
        counts.append(workflow.retry_count)
        settle()
    workflow = again(workflow)
    assert (workflow.status, len(service.calls)) == ("FAILED", most)
    assert counts == [count for number in range(1, most) for count in (number, number)]


def test_the_failures_of_another_step_before_it_are_not_its_own(service: Downstream) -> None:
    workflow = times_out(service, retry=Retry(max_attempts=5))
    workflow = again(workflow)
    Workflow.objects.update(current_step="another", retry_count=4)
    assert again(workflow).retry_count == 0

"""Nothing is decided without the row: what a worker does when one of its connections is gone, or says so too late."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from tests import engine
from tests.engine import define, submit, terminate, work
from tests.workflows.refusing import assert_put_back, lose
from workflows.definition import Step
from workflows.errors import RetryableStepError, StepError
from workflows.models import Attempt, Workflow

pytestmark = engine.ENGINE


@pytest.mark.parametrize("alias", ["default", "attempt_log"])
@pytest.mark.parametrize("error", [ValueError("looks ordinary"), RetryableStepError(), StepError("no")])
def test_nothing_is_decided_on_an_error_while_a_connection_is_gone(alias: str, error: Exception) -> None:
    def lose_it_and_fail(*, workflow: Workflow, context: Any) -> None:
        terminate(alias)
        raise error

    define([lose_it_and_fail])
    assert_put_back(lose(submit()))


def test_no_step_runs_after_a_best_effort_step_has_lost_the_claim() -> None:
    ran: list[str] = []

    def lose_it(*, workflow: Workflow, context: Any) -> None:
        terminate("default")
        Group.objects.count()

    define([Step(lose_it, best_effort=True), lambda *, workflow, context: ran.append("next")])
    assert (lose(submit()).status, ran) == ("PENDING", [])


@pytest.mark.parametrize("error", [None, RetryableStepError("Not now.")])
def test_nothing_is_decided_while_the_attempt_is_not_to_be_seen(error: Exception | None) -> None:
    """A claim of which every statement sees the same snapshot, older than the attempt, could never close it."""
    failing = [error]

    def fail_once(*, workflow: Workflow, context: Any) -> None:
        if failing and (failure := failing.pop()):
            raise failure

    define([fail_once])
    workflow = submit()
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_isolation = 'repeatable read'")
    lose(workflow)
    assert work(workflow).status == "COMPLETE"
    assert list(Attempt.objects.order_by("number").values_list("outcome", flat=True)) == ["lost", "complete"]

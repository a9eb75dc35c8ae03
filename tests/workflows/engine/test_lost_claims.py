"""Nothing is decided without the row: what a worker does when one of its connections is gone, or says so too late."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection

from tests import engine
from tests.engine import define, kinds, last_attempt, submit, terminate, work, worker
from tests.workflows.engine.steps import say_one
from workflows.definition import Step
from workflows.errors import ClaimLost, RetryableStepError, StepError
from workflows.models import Attempt, Workflow

pytestmark = engine.ENGINE


@pytest.mark.parametrize("alias", ["default", "attempt_log"])
@pytest.mark.parametrize("error", [ValueError("looks ordinary"), RetryableStepError(), StepError("no")])
def test_nothing_is_decided_on_an_error_while_a_connection_is_gone(alias: str, error: Exception) -> None:
    def lose_it_and_fail(*, workflow: Workflow, context: Any) -> None:
        terminate(alias)
        raise error

    define([lose_it_and_fail])
    workflow = submit()
    this = worker()
    with pytest.raises(ClaimLost):
        this.process_next()
    this.in_hand.close_lost()
    workflow = Workflow.objects.get(pk=workflow.pk)
    assert (workflow.status, workflow.retry_count, kinds(workflow)) == ("PENDING", 0, ["lost"])
    assert last_attempt(workflow).outcome == "lost"


def test_a_best_effort_step_does_not_swallow_the_loss_of_the_claim() -> None:
    def lose_it(*, workflow: Workflow, context: Any) -> None:
        terminate("default")
        Group.objects.count()

    define([Step(lose_it, best_effort=True), say_one])
    workflow = submit()
    this = worker()
    with pytest.raises(ClaimLost):
        this.process_next()
    this.in_hand.close_lost()
    assert Workflow.objects.get(pk=workflow.pk).status == "PENDING"


def test_a_step_that_closes_the_connection_decides_nothing() -> None:
    """`atomic()` exits without a word then, as if all had been committed."""

    def close(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        connection.close()
        return {}

    define([close])
    workflow = submit()
    this = worker()
    with pytest.raises((ClaimLost, OperationalError)):  # as the server has noticed yet, or not
        this.process_next()
    this.in_hand.close_lost()
    assert Workflow.objects.get(pk=workflow.pk).status == "PENDING"
    assert last_attempt(workflow).outcome == "lost"


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
    this = worker()
    with pytest.raises(ClaimLost):
        this.process_next()
    this.in_hand.close_lost()
    assert work(workflow).status == "COMPLETE"
    assert list(Attempt.objects.order_by("number").values_list("outcome", flat=True)) == ["lost", "complete"]

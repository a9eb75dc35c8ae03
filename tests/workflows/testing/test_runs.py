"""`workflows.testing`, as somebody who writes a workflow uses it: runs, crashes, failures, answers, signals, times."""

from __future__ import annotations

import re
from copy import copy
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel

from tests.workflows.testing.order import ORDER, ORDERS, PAYLOAD, OrderContext, check_order, order_of, pay, with_step
from workflows import testing
from workflows.definition import Step, WorkflowDefinition
from workflows.errors import RetryableStepError
from workflows.models import Attempt, ManualTask, Workflow
from workflows.waits import require_approval, wait_for_signal, wait_for_time

pytestmark = testing.databases()


class Discount(BaseModel):
    percent: int


def test_an_order_is_shipped() -> None:
    run = testing.run(ORDER, PAYLOAD)
    assert (run.status, run.context["parcel"]) == ("COMPLETE", "p-2")
    assert run.effects == {"reserve": "done", "charge": "done", "ship": "done"}
    assert run.outcomes["review"] == "skipped"


def test_a_run_is_no_duplicate_of_another_one() -> None:
    once = copy(ORDER)
    once.business_key = tuple(name for name, value in PAYLOAD.items() if isinstance(value, str))
    assert [testing.run(once, PAYLOAD).status for _ in range(2)] == ["COMPLETE", "COMPLETE"]


@testing.every_failure(ORDER)
def test_whatever_fails_is_undone(failure: testing.Failure) -> None:
    run = testing.check_compensation(ORDER, PAYLOAD, failure)
    assert run.status == "FAILED"


def test_the_matrix_has_every_step_and_every_call() -> None:
    assert [str(failure) for failure in testing.failures(ORDER)] == [
        "check_order fails",
        "reserve fails",
        "reserve fails, having called",
        "review fails",
        "charge fails",
        "charge fails, having called",
        "ship fails",
        "ship fails, having called",
    ]
    assert len(testing.boundaries(ORDER)) == 3 * 4 + 3


@pytest.mark.parametrize(("yes", "status", "undone"), [(True, "COMPLETE", []), (False, "FAILED", ["reserve"])])
def test_questions_are_answered(yes: bool, status: str, undone: list[str]) -> None:
    run = testing.run(ORDER, PAYLOAD | {"large": True}, decide=lambda task: yes)
    assert (run.status, run.undone) == (status, undone)
    assert ManualTask.objects.get().decided_by == User.objects.get(username="testing")


def test_retries_and_times_are_not_waited_for() -> None:
    def flaky(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
        wait_for_time(workflow, "a month", timedelta(days=30))
        if Attempt.objects.filter(workflow=workflow).count() < 4:
            raise RetryableStepError(base_delay=3600)
        return {"parcel": "late"}

    run = testing.run(with_step("ship", Step(flaky)), PAYLOAD)
    assert (run.context["parcel"], run.called("charge")) == ("late", 1)


def test_a_signal_is_sent_when_it_is_waited_for() -> None:
    run = testing.run(with_step("review", Step(pay)), PAYLOAD, signals={"payment.confirmed": {"by": "ada"}})
    assert (run.status, run.context["approved_by"], run.context["parcel"]) == ("COMPLETE", "ada", "p-2")


def test_of_a_signal_that_nobody_sends_and_of_a_question_that_nobody_answers_the_deadline_may_pass() -> None:
    definition = with_step("review", Step(pay))
    assert testing.run(definition, PAYLOAD).workflow.waiting_for == "the signal payment.failed or payment.confirmed"
    late = testing.run(definition, PAYLOAD, overdue=["payment"])
    assert (late.status, late.workflow.last_error_code, late.undone) == ("FAILED", "wait_expired", ["reserve"])
    late = testing.run(ORDER, PAYLOAD | {"large": True}, overdue=["review"])
    assert (late.status, late.workflow.last_error_code, late.undone) == ("FAILED", "approval_expired", ["reserve"])


def test_a_question_may_be_answered_by_a_form_and_with_four_eyes() -> None:
    def review_twice(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
        first = require_approval(workflow, "1", question="Ok?", form=Discount, timeout=timedelta(1))
        second = require_approval(
            workflow, "2", question="Sure?", requested_by=first.decided_by, four_eyes=True, timeout=timedelta(1)
        )
        return {"approved_by": f"{first.decided_by}, {second.decided_by}: {first.answer.percent}"}

    run = testing.run(with_step("review", Step(review_twice)), PAYLOAD, decide=lambda task: {"percent": 5})
    assert (run.status, run.context["approved_by"]) == ("COMPLETE", "testing, another: 5")


def test_a_wait_that_looks_for_itself_does_so() -> None:
    def ask_the_bank(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
        def look() -> dict[str, str] | None:
            has_waited = Attempt.objects.filter(workflow=workflow).count() > 1
            return {"by": "the bank"} if workflow.payload["pays"] and has_waited else None

        told = wait_for_signal(workflow, "payment", "paid", timeout=timedelta(days=1), look=look)
        return {"approved_by": told.payload["by"]}

    definition = with_step("review", Step(ask_the_bank))
    assert testing.run(definition, PAYLOAD | {"pays": True}).context["approved_by"] == "the bank"
    assert testing.run(definition, PAYLOAD | {"pays": False}).status == "PENDING"
    late = testing.run(definition, PAYLOAD | {"pays": False}, overdue=["payment"])
    assert late.workflow.last_error_code == "wait_expired"


def test_children_are_run_too_and_their_parent_waits_for_what_they_wait_for() -> None:
    waiting = with_step("review", Step(pay))
    run = testing.run(ORDERS, {"skus": ["A", "B"]}, children=[waiting], signals={"payment.confirmed": {"by": "ada"}})
    assert run.context["parcel"] == "COMPLETE, COMPLETE"
    assert run.workflow.children.count() == 2
    run = testing.run(ORDERS, {"skus": ["A"]}, children=[waiting])
    assert run.workflow.waiting_for == "the workflows that it has started (orders)"
    late = testing.run(ORDERS, {"skus": ["A"]}, children=[waiting], overdue=["orders"])
    assert (late.status, late.workflow.last_error_code) == ("FAILED", "wait_expired")


def test_the_row_is_as_a_submission_makes_it() -> None:
    steps = [check_order]
    linked = WorkflowDefinition(
        name="order", context_class=OrderContext, steps=steps, linking_id="sku", expires_after=timedelta(hours=1)
    )
    workflow = testing.run(linked, PAYLOAD).workflow
    assert workflow.linking_id == "A-1"
    assert workflow.expires_at is not None


def test_a_workflow_that_no_signal_to_its_linking_id_would_reach_fails_the_test() -> None:
    linked = WorkflowDefinition(name="order", context_class=OrderContext, steps=[pay], linking_id="order.number")
    paid: testing.Signals = {"payment.confirmed": {"by": "card"}}
    with pytest.raises(AssertionError, match=r"no linking id: its payload has no text or number .* at 'order.number'"):
        testing.run(linked, {"order": {"id": 7}}, signals=paid)
    assert testing.run(linked, {"order": {"number": 7}}, signals=paid).status == "COMPLETE"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"failure": testing.Failure("chrage")}, "No step is called 'chrage'. Did you mean 'charge'?"),
        ({"crash": "before_call"}, "No boundary is called 'before_call'"),
        ({"crash": "after_call:chrage"}, "No once step is called 'chrage'. Did you mean 'charge'?"),
    ],
)
def test_a_name_that_nothing_has_is_refused(told: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        testing.run(ORDER, PAYLOAD, **told)


def test_a_wait_that_is_overdue_under_a_name_that_none_has_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="No wait is called paid, but review"):
        testing.run(ORDER, PAYLOAD | {"large": True}, overdue=["paid", "rev*"])


def test_a_failure_reaches_the_step_of_a_child() -> None:
    run = testing.run(ORDERS, {"skus": ["A", "B"]}, children=[ORDER], failure=testing.Failure("charge"))
    assert (run.failed, run.context["parcel"]) == (True, "FAILED, FAILED")
    with pytest.raises(ValueError, match="'charge' is a step of a child"):
        testing.check_compensation(ORDERS, {"skus": ["A"]}, testing.Failure("charge"), children=[ORDER])


def test_a_child_whose_definition_is_not_given_fails_the_test_with_the_cure() -> None:
    with pytest.raises(AssertionError, match=r"orders starts a order: add its definition, testing.run\(..., children="):
        testing.run(ORDERS, {"skus": ["A"]})


def test_a_run_shows_what_was_raised(caplog: pytest.LogCaptureFixture) -> None:
    def breaks(*, workflow: Workflow, context: OrderContext) -> None:
        raise KeyError("sku of the order")

    run = testing.run(order_of(breaks), PAYLOAD)
    assert "FAILED" in repr(run)
    assert "KeyError: 'sku of the order'" in repr(run)
    assert "breaks of order raised KeyError: 'sku of the order'" in caplog.text


@testing.every_failure(ORDER)
def test_the_path_past_a_deadline_is_undone_too(failure: testing.Failure) -> None:
    run = testing.check_compensation(ORDER, PAYLOAD | {"large": True}, failure, overdue=["review"])
    assert run.status == "FAILED"
    assert "charge" not in run.results

"""`workflows.testing` finds calls that repeat without being `once`, by the keys that steps ask for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest

from tests.workflows.testing.order import (
    ORDERS,
    PAYLOAD,
    OrderContext,
    charge,
    check_order,
    find_charge,
    order_of,
    review,
    ship,
    shop,
)
from workflows import effects, testing
from workflows.definition import Step, WorkflowDefinition, WorkflowStep
from workflows.effects import KnownEffect, key_for
from workflows.errors import RetryableStepError
from workflows.models import Attempt, Workflow
from workflows.testing import keys

pytestmark = testing.databases()

# With a review: the steps before it run twice.
LARGE = PAYLOAD | {"large": True}
REPEATED = r"The step tell of order ran 2 times.*Step\(tell, once=True.*Step\(tell, repeatable=True"
ONCE = {"best_effort": True, "once": True, "key_ttl": timedelta(days=1)}


def fail_before(attempt: int, workflow: Workflow) -> None:
    if Attempt.objects.filter(workflow=workflow).count() < attempt:
        raise RetryableStepError


def flaky(*, workflow: Workflow, context: OrderContext) -> None:
    fail_before(2, workflow)


def tell(*, workflow: Workflow, context: OrderContext) -> None:
    shop.do("mail", key_for(workflow, "tell"))


def tell_in_a_thread(*, workflow: Workflow, context: OrderContext) -> None:
    thread = Thread(target=tell, kwargs={"workflow": workflow, "context": context})
    thread.start()
    thread.join()


def tell_and_fail(*, workflow: Workflow, context: OrderContext) -> None:
    tell(workflow=workflow, context=context)
    fail_before(2, workflow)


def tell_and_say_so(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    tell(workflow=workflow, context=context)
    return {}


def tell_both(*, workflow: Workflow, context: OrderContext) -> None:
    for whom in ("patient", "clinic"):
        shop.do("mail", key_for(workflow, f"tell_{whom}"))


def tell_of_another(*, workflow: Workflow, context: OrderContext) -> None:
    """As a workflow that another worker runs at the same time, in a thread of the test."""
    tell_in_a_thread(workflow=Workflow(pk=0, idempotency_key=uuid4(), payload={}), context=context)


def ship_in_a_thread(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    tell_in_a_thread(workflow=workflow, context=context)
    fail_before(3, workflow)
    return {"parcel": "p"}


TELL = Step(tell, best_effort=True)


@pytest.mark.parametrize(
    ("steps", "payload"),
    [
        pytest.param(order_of(TELL, review), LARGE, id="before a wait, where all goes well"),
        pytest.param(order_of(tell, flaky), PAYLOAD, id="before a step that is retried"),
        pytest.param(order_of(Step(tell_and_fail, name="tell")), PAYLOAD, id="in a step that failed"),
        pytest.param(order_of(Step(tell_in_a_thread, name="tell"), review), LARGE, id="in a thread of its step"),
    ],
)
def test_a_mail_that_may_have_been_sent_twice_is_found(steps: WorkflowDefinition, payload: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match=REPEATED):
        testing.run(steps, payload)


@pytest.mark.parametrize("crash", ["before_commit", "before_commit:complete", "after_call:charge"])
def test_a_mail_before_a_crash_is_found(crash: str) -> None:
    steps = order_of(TELL, Step(charge, once=True, lookup=find_charge))
    assert crash in testing.boundaries(steps)
    with pytest.raises(AssertionError, match=REPEATED):
        testing.run(steps, PAYLOAD, crash=crash)


def test_a_last_mail_behind_a_wait_is_found_by_the_crash_of_the_run_that_completes() -> None:
    steps = order_of(review, TELL)
    found = []
    for boundary in testing.boundaries(steps):
        try:
            testing.run(steps, LARGE, crash=boundary)
        except AssertionError:
            found.append(boundary)
    assert found == ["before_commit:complete"]


@pytest.mark.parametrize("of_a_child", [False, True])
@pytest.mark.parametrize("function", [tell, tell_in_a_thread])
def test_a_once_step_that_calls_and_says_that_it_did_not_is_found(function: WorkflowStep, of_a_child: bool) -> None:
    steps = order_of(Step(function, name="tell", **ONCE))
    runs, payload, children = (ORDERS, {"skus": ["A"]}, [steps]) if of_a_child else (steps, PAYLOAD, [])
    with pytest.raises(AssertionError, match=r"The step tell of order is once, asked.*returned None.*return \{\}"):
        testing.run(runs, payload, children=children)


@pytest.mark.parametrize("step", [replace(TELL, repeatable=True), Step(tell_and_say_so, **ONCE)])
def test_a_step_may_be_repeatable_or_once(step: Step) -> None:
    run = testing.run(order_of(step, review), LARGE, crash="before_commit")
    assert (run.status, run.crashed) == ("COMPLETE", True)


@pytest.mark.parametrize(
    ("step", "beside", "payload"),
    [
        pytest.param(check_order, review, LARGE, id="a step that makes no call runs again"),
        pytest.param(tell_of_another, review, LARGE, id="a key of another workflow is not of the step that runs"),
        pytest.param(
            check_order, Step(ship_in_a_thread, once=True), PAYLOAD, id="a once step's thread is taken for no other"
        ),
        pytest.param(tell_both, check_order, PAYLOAD, id="two calls of one run are not two runs"),
        pytest.param(tell, Step(tell, name="again"), PAYLOAD, id="two steps that call are not one that calls twice"),
    ],
)
def test_no_other_step_has_repeated_its_call(step: WorkflowStep, beside: Any, payload: dict[str, Any]) -> None:
    run = testing.run(order_of(step, beside), payload)
    assert run.status == "COMPLETE"
    if payload is LARGE:
        assert run.called(step.__name__) == 2


def test_a_call_of_each_child_is_not_the_parents_repeated() -> None:
    run = testing.run(ORDERS, {"skus": ["A", "B"]}, children=[order_of(tell)])
    assert run.context["parcel"] == "COMPLETE, COMPLETE"


def test_an_undo_and_a_lookup_may_come_again() -> None:
    """Both are repeatable by what they promise."""

    def refund_at_the_second_try(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> None:
        shop.do("refund", key_for(workflow, "charge"))
        fail_before(4, workflow)

    def find_at_the_second_try(
        *, workflow: Workflow, context: OrderContext, effect: KnownEffect
    ) -> dict[str, str] | None:
        key = key_for(workflow, "charge")
        fail_before(3, workflow)
        return {"charge": shop.done[key]}

    charging = Step(charge, once=True, undo=refund_at_the_second_try, lookup=find_at_the_second_try)
    run = testing.check_compensation(order_of(charging), PAYLOAD, testing.Failure("charge", happened=True))
    assert (run.status, run.undone) == ("FAILED", ["charge"])


def test_the_key_of_a_once_step_is_not_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Workflow] = []
    monkeypatch.setattr(keys.Keys, "_note", lambda self, workflow: told.append(workflow))
    run = testing.run(order_of(tell, Step(ship, once=True, key_ttl=timedelta(days=1))), PAYLOAD)
    assert run.effects == {"ship": "done"}
    assert told == [run.workflow]


def test_keys_are_counted_for_a_run_alone() -> None:
    with pytest.raises(ZeroDivisionError):
        testing.run(order_of(tell, review), LARGE, decide=lambda task: bool(1 / 0))
    assert effects.key_requested_outside_once is None
    for _ in range(2):
        tell(workflow=Workflow(idempotency_key=uuid4(), payload={}), context=OrderContext())
    assert testing.run(order_of(tell), PAYLOAD).status == "COMPLETE"

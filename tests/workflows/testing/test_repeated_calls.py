"""`workflows.testing` finds calls that repeat without being `once`, by the keys that steps ask for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from threading import Thread
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
    pay,
    review,
    ship,
    shop,
)
from workflows import effects, testing
from workflows.definition import Step, WorkflowStep
from workflows.effects import KnownEffect, key_for
from workflows.errors import RetryableStepError
from workflows.models import Attempt, Workflow
from workflows.testing import keys

pytestmark = testing.databases()


def tell(*, workflow: Workflow, context: OrderContext) -> None:
    shop.do("mail", key_for(workflow, "tell"))


def in_a_thread(*, workflow: Workflow, context: OrderContext) -> None:
    thread = Thread(target=tell, kwargs={"workflow": workflow, "context": context})
    thread.start()
    thread.join()


TELL = Step(tell, best_effort=True)
REPEATED = r"The step tell of order ran 2 times.*Step\(tell, once=True.*Step\(tell, repeatable=True"


def test_a_mail_before_a_wait_is_found_where_all_goes_well() -> None:
    with pytest.raises(AssertionError, match=REPEATED):
        testing.run(order_of(TELL, review), PAYLOAD | {"large": True})


def test_a_mail_before_a_step_that_is_retried_is_found() -> None:
    def flaky(*, workflow: Workflow, context: OrderContext) -> None:
        if Attempt.objects.filter(workflow=workflow).count() < 2:
            raise RetryableStepError

    with pytest.raises(AssertionError, match=REPEATED):
        testing.run(order_of(tell, flaky), PAYLOAD)


def test_a_mail_that_may_have_been_sent_before_its_step_failed_is_found() -> None:
    def tell(*, workflow: Workflow, context: OrderContext) -> None:
        shop.do("mail", key_for(workflow, "tell"))
        if Attempt.objects.filter(workflow=workflow).count() < 2:
            raise RetryableStepError

    with pytest.raises(AssertionError, match=REPEATED):
        testing.run(order_of(tell), PAYLOAD)


@pytest.mark.parametrize("crash", ["before_commit", "before_commit:complete", "after_call:charge"])
def test_a_mail_before_a_crash_is_found(crash: str) -> None:
    steps = order_of(TELL, Step(charge, once=True, lookup=find_charge))
    assert crash in testing.boundaries(steps)
    with pytest.raises(AssertionError, match=REPEATED):
        testing.run(steps, PAYLOAD, crash=crash)


def test_a_last_mail_behind_a_wait_is_found_by_the_crash_of_the_run_that_completes() -> None:
    steps = order_of(review, TELL)
    payload = PAYLOAD | {"large": True}
    found = []
    for boundary in testing.boundaries(steps):
        try:
            testing.run(steps, payload, crash=boundary)
        except AssertionError:
            found.append(boundary)
    assert found == ["before_commit:complete"]


def test_a_mail_before_a_wait_is_found_in_the_compensation_matrix() -> None:
    steps = order_of(TELL, review, ship)
    with pytest.raises(AssertionError, match=REPEATED):
        testing.check_compensation(steps, PAYLOAD | {"large": True}, testing.Failure("ship"))


def tell_and_say_so(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    tell(workflow=workflow, context=context)
    return {}


ONCE = {"best_effort": True, "once": True, "key_ttl": timedelta(days=1)}


@pytest.mark.parametrize("step", [replace(TELL, repeatable=True), Step(tell_and_say_so, **ONCE)])
def test_a_step_may_be_repeatable_or_once(step: Step) -> None:
    run = testing.run(order_of(step, review), PAYLOAD | {"large": True}, crash="before_commit")
    assert (run.status, run.crashed) == ("COMPLETE", True)


@pytest.mark.parametrize("of_a_child", [False, True])
@pytest.mark.parametrize("function", [tell, in_a_thread])
def test_a_once_step_that_calls_and_says_that_it_did_not_is_found(function: WorkflowStep, of_a_child: bool) -> None:
    steps = order_of(Step(function, name="tell", **ONCE))
    runs, payload, children = (ORDERS, {"skus": ["A"]}, [steps]) if of_a_child else (steps, PAYLOAD, [])
    with pytest.raises(AssertionError, match=r"The step tell of order is once, asked.*returned None.*return \{\}"):
        testing.run(runs, payload, children=children)


def test_a_once_step_that_does_not_apply_has_asked_for_no_key() -> None:
    def skip(*, workflow: Workflow, context: OrderContext) -> None:
        return None

    run = testing.run(order_of(Step(skip, **ONCE), Step(charge, once=True, lookup=find_charge)), PAYLOAD)
    assert run.effects == {"skip": "skipped", "charge": "done"}


def test_a_step_that_makes_no_call_may_run_again() -> None:
    """As one that does not apply, or reads, or writes to our own tables."""
    run = testing.run(order_of(check_order, review), PAYLOAD | {"large": True})
    assert (run.status, run.called("check_order")) == ("COMPLETE", 2)


def test_a_call_that_a_thread_of_its_step_makes_is_found() -> None:
    def tell_in_a_thread(*, workflow: Workflow, context: OrderContext) -> None:
        in_a_thread(workflow=workflow, context=context)

    with pytest.raises(AssertionError, match="The step tell of order ran 2 times"):
        testing.run(order_of(Step(tell_in_a_thread, name="tell"), review), PAYLOAD | {"large": True})


def test_a_once_step_that_asks_for_its_key_in_a_thread_is_taken_for_no_other() -> None:
    """No step that is not `once` has asked, whichever runs beside it."""

    def ship_in_a_thread(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
        in_a_thread(workflow=workflow, context=context)
        if Attempt.objects.filter(workflow=workflow).count() < 3:
            raise RetryableStepError
        return {"parcel": "p"}

    run = testing.run(order_of(check_order, Step(ship_in_a_thread, once=True)), PAYLOAD)
    assert (run.status, run.called("check_order")) == ("COMPLETE", 3)


def test_two_calls_of_one_run_are_not_two_runs() -> None:
    def tell_both(*, workflow: Workflow, context: OrderContext) -> None:
        for whom in ("patient", "clinic"):
            shop.do("mail", key_for(workflow, f"tell_{whom}"))

    assert testing.run(order_of(tell_both), PAYLOAD).status == "COMPLETE"


def test_two_steps_that_call_once_each_are_not_one_that_calls_twice() -> None:
    def tell_again(*, workflow: Workflow, context: OrderContext) -> None:
        shop.do("mail", key_for(workflow, "tell"))

    assert testing.run(order_of(tell, tell_again), PAYLOAD).status == "COMPLETE"


def test_an_undo_and_a_lookup_may_come_again() -> None:
    """Both are repeatable by what they promise."""

    def refund_at_the_second_try(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> None:
        shop.do("refund", key_for(workflow, "charge"))
        if Attempt.objects.filter(workflow=workflow).count() < 4:
            raise RetryableStepError

    def find_at_the_second_try(
        *, workflow: Workflow, context: OrderContext, effect: KnownEffect
    ) -> dict[str, str] | None:
        key = key_for(workflow, "charge")
        if Attempt.objects.filter(workflow=workflow).count() < 3:
            raise RetryableStepError
        return {"charge": shop.done[key]}

    charging = Step(charge, once=True, undo=refund_at_the_second_try, lookup=find_at_the_second_try)
    run = testing.check_compensation(order_of(charging), PAYLOAD, testing.Failure("charge", happened=True))
    assert (run.status, run.undone) == ("FAILED", ["charge"])


def test_a_call_of_each_child_is_not_the_parents_repeated() -> None:
    run = testing.run(ORDERS, {"skus": ["A", "B"]}, children=[order_of(tell)])
    assert run.context["parcel"] == "COMPLETE, COMPLETE"


def test_a_call_that_a_child_repeats_is_found_too() -> None:
    with pytest.raises(AssertionError, match=REPEATED):
        testing.run(
            ORDERS, {"skus": ["A"]}, children=[order_of(tell, Step(pay))], signals={"payment.confirmed": {"by": "ada"}}
        )


def test_every_step_that_repeats_its_call_is_named() -> None:
    def print_label(*, workflow: Workflow, context: OrderContext) -> None:
        key_for(workflow, "print_label")

    with pytest.raises(AssertionError) as found:
        testing.run(order_of(tell, print_label, review), PAYLOAD | {"large": True})
    assert all(f"The step {name} of order" in str(found.value) for name in ("tell", "print_label"))


def test_a_key_of_another_workflow_is_not_of_the_step_that_runs() -> None:
    """As of one that another worker runs at the same time, in a thread of the test."""
    another = Workflow(pk=0, idempotency_key=uuid4(), payload={})

    def look_on(*, workflow: Workflow, context: OrderContext) -> None:
        in_a_thread(workflow=another, context=context)

    assert testing.run(order_of(look_on, review), PAYLOAD | {"large": True}).called("look_on") == 2


def test_the_key_of_a_once_step_is_not_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Workflow] = []
    monkeypatch.setattr(keys.Keys, "_note", lambda self, workflow: told.append(workflow))
    run = testing.run(order_of(tell, Step(ship, once=True, key_ttl=timedelta(days=1))), PAYLOAD)
    assert run.effects == {"ship": "done"}
    assert told == [run.workflow]


def test_keys_are_counted_for_a_run_alone() -> None:
    with pytest.raises(ZeroDivisionError):
        testing.run(order_of(tell, review), PAYLOAD | {"large": True}, decide=lambda task: bool(1 / 0))
    assert effects.key_requested_outside_once is None
    for _ in range(2):
        tell(workflow=Workflow(idempotency_key=uuid4(), payload={}), context=OrderContext())
    assert testing.run(order_of(tell), PAYLOAD).status == "COMPLETE"

"""What `workflows.testing` says of a call in doubt: what it has seen, or what `decide` says."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.workflows.testing.order import (
    ORDERS,
    PAYLOAD,
    OrderContext,
    charge,
    find_charge,
    order_of,
    refund,
    ship,
    shop,
)
from workflows import testing
from workflows.definition import Step, WorkflowDefinition, WorkflowStep
from workflows.effects import key_for
from workflows.errors import StepError, UnknownOutcome
from workflows.models import Confirmation, ManualTask, Workflow
from workflows.outages import call_to
from workflows.wording import Money, Wording

pytestmark = testing.databases()

PAID = {"charge": "c-0"}


def charge_without_an_answer(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    charge(workflow=workflow, context=context)
    raise UnknownOutcome("No answer.", code="no_answer")


def swallow(*, workflow: Workflow, context: OrderContext) -> None:
    with suppress(BaseException):
        time.sleep(30)


def charge_at_a_bank(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    key = key_for(workflow, "charge")
    with call_to("bank"):
        return {"charge": shop.do("c", key)}


def refused(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    raise StepError("Declined.", code="declined")


def of(function: WorkflowStep, *, two_people: bool = False, **options: Any) -> WorkflowDefinition:
    """One step that charges, with nothing that says whether it has."""
    money = Money("charge", "amount", "currency", reference="charge", refund="refund")
    return WorkflowDefinition(
        name="order",
        context_class=OrderContext,
        steps=[Step(function, name="charge", once=True, returns=("charge",), **options)],
        wording=Wording(money=money),
        two_people=two_people,
    )


TWO_PEOPLE = of(charge, two_people=True)


@testing.every_crash(TWO_PEOPLE)
def test_a_call_that_the_crash_forgot_is_made_again_when_two_people_say_so(boundary: str) -> None:
    run = testing.run(TWO_PEOPLE, PAYLOAD, crash=boundary)
    assert (run.status, len(shop.done)) == ("COMPLETE", 1)
    confirmed = [User.objects.get(pk=each.decided_by_id).username for each in Confirmation.objects.all()]
    assert confirmed == (["another"] if boundary == "after_intent:charge" else [])


@pytest.mark.parametrize("crash", ["", "after_call:charge"])
def test_a_call_that_raised_after_it_was_made_is_what_decide_says(crash: str) -> None:
    asked: list[str] = []

    def happened(task: ManualTask) -> Mapping[str, Any]:
        asked.append(task.task_type)
        return PAID

    run = testing.run(of(charge_without_an_answer), PAYLOAD, crash=crash, decide=happened)
    assert (run.status, run.context["charge"], list(shop.done)) == ("COMPLETE", "c-0", [f"{run.workflow.key}:charge"])
    assert asked == ["effect_in_doubt"]


@pytest.mark.parametrize("two_people", [False, True])
def test_a_person_may_say_no_wrongly_and_the_test_sees_two_charges(two_people: bool) -> None:
    def decide(task: ManualTask) -> bool | Mapping[str, Any]:
        return len(shop.done) == 2 and PAID

    run = testing.run(of(charge_without_an_answer, two_people=two_people), PAYLOAD, decide=decide)
    assert (run.status, len(shop.done), Confirmation.objects.count()) == ("COMPLETE", 2, int(two_people))


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (charge_without_an_answer, r"raised UnknownOutcome \(No answer.\).*'effect_in_doubt': False, or the fields"),
        (lambda *, workflow, context: key_for(workflow, "charge") and None, "returned None after it had asked"),
        (lambda *, workflow, context: {}["key"], r"raised KeyError \('key'\)"),
        (swallow, "ran out of time"),
    ],
)
@pytest.mark.parametrize("of_a_child", [False, True])
def test_the_test_says_no_where_it_does_not_know(step: WorkflowStep, told: str, of_a_child: bool) -> None:
    definition = of(step, timeout=0.5, undo=lambda *, workflow, context, effect: None)
    runs, payload, children = (ORDERS, {"skus": ["A"]}, [definition]) if of_a_child else (definition, PAYLOAD, [])
    with pytest.raises(AssertionError, match=rf"Unclear call: did “Charge” happen\? The step {told}"):
        testing.run(runs, payload, children=children)
    assert len(shop.done) <= 1


def test_a_call_that_ran_out_of_time_is_what_decide_says() -> None:
    slow = of(charge_at_a_bank, timeout=0.3, two_people=True)
    with testing.slow("bank", seconds=30, calls=1):
        run = testing.run(slow, PAYLOAD, decide=lambda task: False)
    assert (run.status, list(shop.done)) == ("COMPLETE", [f"{run.workflow.key}:charge:2"])


def test_a_refusal_is_known_to_have_done_nothing() -> None:
    run = testing.run(of(refused), PAYLOAD, crash="after_call:charge")
    assert (run.status, run.workflow.last_error_code) == ("FAILED", "declined")


def test_a_call_that_raised_after_it_was_made_is_undone_too() -> None:
    charging = Step(charge_without_an_answer, name="charge", once=True, undo=refund, lookup=find_charge)
    run = testing.check_compensation(order_of(charging, Step(ship, once=True)), PAYLOAD, testing.Failure("ship"))
    assert (run.status, run.undone) == ("FAILED", ["charge"])


def test_an_answer_that_the_console_would_refuse_is_told() -> None:
    with pytest.raises(AssertionError, match="Nobody could answer True: A yes is not enough: say what charge returned"):
        testing.run(of(charge_without_an_answer), PAYLOAD, decide=lambda task: True)

"""`workflows.testing` says so when the workflow is wrong, or the test is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from tests.workflows.testing.order import (
    ORDER,
    PAYLOAD,
    STEPS,
    OrderContext,
    charge,
    find_charge,
    order_of,
    refund,
    ship,
    with_step,
)
from workflows import testing
from workflows.definition import Step, Undo
from workflows.effects import KnownEffect
from workflows.errors import RetryableStepError, StepError, Suspend
from workflows.models import Workflow
from workflows.testing import world
from workflows.waits import require_approval

pytestmark = testing.databases()


def not_undone(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> Mapping[str, Any] | None:
    raise StepError("No.", code="no_refunds")


def reserve_locally(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    return {"reservation": "r"}


def refund_reserved(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> None:
    assert context.reservation is not None, "reserved, and not on the ledger"


@pytest.mark.parametrize("undo", [not_undone, refund_reserved])
def test_an_undo_that_does_not_work_or_relies_on_what_is_not_on_the_ledger_is_found(undo: Undo) -> None:
    wrong = order_of(reserve_locally, Step(charge, once=True, undo=undo, lookup=find_charge), ship)
    with pytest.raises(AssertionError, match="The reversal of “Charge” failed 3 times"):
        testing.check_compensation(wrong, PAYLOAD, testing.Failure("ship"))


def test_a_lookup_that_finds_nothing_is_found() -> None:
    def blind(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> None: ...

    wrong = with_step("charge", Step(charge, once=True, undo=refund, lookup=blind))
    with pytest.raises(AssertionError, match=r"undone are \['reserve'\], and not \['charge', 'reserve'\]"):
        testing.check_compensation(wrong, PAYLOAD, testing.Failure("charge", happened=True))


def test_one_that_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "MOST_RUNS", 5)

    def never(*, workflow: Workflow, context: OrderContext) -> None:
        raise RetryableStepError(max_attempts=1000)

    with pytest.raises(AssertionError, match="does not come to rest"):
        testing.run(with_step("ship", Step(never)), PAYLOAD)


def test_a_question_to_a_group_that_the_test_lacks_is_told() -> None:
    def ask(*, workflow: Workflow, context: OrderContext) -> None:
        require_approval(workflow, "ship", question="Ship it?", team="nobodies", timeout=timedelta(days=1))

    with pytest.raises(AssertionError, match="team nobodies, and there is no such group"):
        testing.run(with_step("ship", Step(ask)), PAYLOAD)


@pytest.mark.django_db(transaction=False, databases=["default", "attempt_log"])
def test_a_test_without_real_transactions_is_told() -> None:
    with transaction.atomic(), pytest.raises(RuntimeError, match="give the test real transactions"):
        testing.run(ORDER, PAYLOAD)


def test_a_failure_that_is_not_reached_is_no_proof() -> None:
    def wait(*, workflow: Workflow, context: OrderContext) -> None:
        raise Suspend("a parcel", wake_on=["parcel"], until=workflow.created_at + timedelta(days=1))

    with pytest.raises(AssertionError, match="ship fails: it is not reached"):
        testing.check_compensation(order_of(wait, *STEPS), PAYLOAD, testing.Failure("ship"))


def test_a_failure_that_is_swallowed_is_found() -> None:
    wrong = with_step("ship", Step(ship, once=True, best_effort=True))
    with pytest.raises(AssertionError, match=r"ship fails, and yet: .*COMPLETE"):
        testing.check_compensation(wrong, PAYLOAD, testing.Failure("ship"))


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (Step(ship, once=True, returns=("parcel", "charge")), "ship returned parcel, and says parcel, charge"),
        (Step(ship, once=True, returns=()), "ship returned parcel, and says nothing"),
    ],
)
def test_a_step_that_returns_other_fields_than_it_says_is_found(step: Step, told: str) -> None:
    """Not by the engine: the call has happened."""
    with pytest.raises(AssertionError, match=told):
        testing.run(with_step("ship", step), PAYLOAD)
    assert Workflow.objects.get().status == "COMPLETE"
    assert testing.run(with_step("ship", Step(ship, once=True, returns=("parcel",))), PAYLOAD).status == "COMPLETE"

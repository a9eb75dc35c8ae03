"""`workflows.testing`, as somebody who writes a workflow uses it; and that it says so when the workflow is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel

from workflows import effects, testing
from workflows.definition import Step, WorkflowDefinition, WorkflowStep
from workflows.effects import KnownEffect, key_for
from workflows.errors import RetryableStepError, StepError, Suspend
from workflows.models import Attempt, ManualTask, Workflow
from workflows.testing import keys, world
from workflows.waits import Child, require_approval, wait_for_children, wait_for_signal, wait_for_time

pytestmark = testing.databases()

PAYLOAD = {"sku": "A-1"}


class OrderContext(BaseModel):
    reservation: str | None = None
    approved_by: str | None = None
    charge: str | None = None
    parcel: str | None = None


class Shop:
    """The services behind: what was done, by key."""

    def __init__(self) -> None:
        self.done: dict[str, str] = {}

    def do(self, what: str, key: str) -> str:
        return self.done.setdefault(key, f"{what}-{len(self.done)}")


shop = Shop()


@pytest.fixture(autouse=True)
def _empty_shop() -> None:
    shop.done.clear()


def check_order(*, workflow: Workflow, context: OrderContext) -> None:
    if "sku" not in workflow.payload:
        raise StepError("What is ordered?", code="no_sku")


def reserve(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    return {"reservation": shop.do("r", key_for(workflow, "reserve"))}


def release(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> None:
    assert context.reservation is not None
    shop.do("released", effect.undo_key)


def review(*, workflow: Workflow, context: OrderContext) -> dict[str, str] | None:
    if not workflow.payload.get("large"):
        return None
    return {"approved_by": require_approval(workflow, "review", question="Ok?", timeout=timedelta(1)).decided_by}


def charge(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    return {"charge": shop.do("c", key_for(workflow, "charge"))}


def find_charge(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> dict[str, str] | None:
    found = shop.done.get(effect.idempotency_key)
    return {"charge": found} if found else None


def refund(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> dict[str, str]:
    assert context.charge is not None
    return {"refund": shop.do("refund", effect.undo_key)}


def ship(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    return {"parcel": shop.do("p", key_for(workflow, "ship"))}


def thank(*, workflow: Workflow, context: OrderContext) -> None: ...


def pay(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    told = wait_for_signal(workflow, "payment", ["payment.failed", "payment.confirmed"], timeout=timedelta(minutes=15))
    return {"approved_by": told.payload["by"]}


class Discount(BaseModel):
    percent: int


STEPS = [
    check_order,
    Step(reserve, once=True, undo=release, key_ttl=timedelta(hours=1)),
    review,
    Step(charge, once=True, undo=refund, lookup=find_charge),
    Step(ship, once=True),
    Step(thank, best_effort=True),
]
ORDER = WorkflowDefinition(name="order", context_class=OrderContext, steps=STEPS)


def with_step(name: str, step: Step) -> WorkflowDefinition:
    steps = [step if old.name == name else old for old in ORDER.steps]
    return WorkflowDefinition(name="order", context_class=OrderContext, steps=steps)


# --- As it is used ------------------------------------------------------------------------------------


def test_an_order_is_shipped() -> None:
    run = testing.run(ORDER, PAYLOAD)
    assert (run.status, run.context["parcel"]) == ("COMPLETE", "p-2")
    assert run.effects == {"reserve": "done", "charge": "done", "ship": "done"}
    assert run.outcomes["review"] == "skipped"


@testing.every_failure(ORDER)
def test_whatever_fails_is_undone(failure: testing.Failure) -> None:
    run = testing.check_compensation(ORDER, PAYLOAD, failure)
    assert run.status == "FAILED"


@testing.every_crash(ORDER)
def test_a_crash_changes_nothing(boundary: str) -> None:
    run = testing.run(ORDER, PAYLOAD, crash=boundary)
    assert run.crashed
    assert run.status == "COMPLETE"
    assert run.effects == {"reserve": "done", "charge": "done", "ship": "done"}
    assert len(shop.done) == len({key for _, key in run.calls if key}) == 3
    assert run.called("charge") == 1  # it has a lookup, and is not repeated


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


def test_retries_are_not_waited_for() -> None:
    def flaky(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
        if Attempt.objects.filter(workflow=workflow).count() < 4:
            raise RetryableStepError(base_delay=3600)
        return {"parcel": "late"}

    run = testing.run(with_step("ship", Step(flaky)), PAYLOAD)
    assert (run.context["parcel"], run.called("charge")) == ("late", 1)


def test_a_signal_is_sent_when_it_is_waited_for() -> None:
    run = testing.run(with_step("review", Step(pay)), PAYLOAD, signals={"payment.confirmed": {"by": "ada"}})
    assert (run.status, run.context["approved_by"], run.context["parcel"]) == ("COMPLETE", "ada", "p-2")


def test_of_a_signal_that_nobody_sends_the_deadline_may_pass() -> None:
    definition = with_step("review", Step(pay))
    assert testing.run(definition, PAYLOAD).workflow.waiting_for == "the signal payment.failed or payment.confirmed"
    late = testing.run(definition, PAYLOAD, overdue=["payment"])
    assert (late.status, late.workflow.last_error_code, late.undone) == ("FAILED", "wait_expired", ["reserve"])


def test_a_question_that_nobody_answers_expires() -> None:
    run = testing.run(ORDER, PAYLOAD | {"large": True}, overdue=["review"])
    assert (run.status, run.workflow.last_error_code, run.undone) == ("FAILED", "approval_expired", ["reserve"])


def test_a_question_may_be_answered_by_a_form_and_with_four_eyes() -> None:
    def review_twice(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
        first = require_approval(workflow, "1", question="Ok?", form=Discount, timeout=timedelta(1))
        second = require_approval(
            workflow, "2", question="Sure?", requested_by=first.decided_by, four_eyes=True, timeout=timedelta(1)
        )
        return {"approved_by": f"{first.decided_by}, {second.decided_by}: {first.answer.percent}"}

    run = testing.run(with_step("review", Step(review_twice)), PAYLOAD, decide=lambda task: {"percent": 5})
    assert (run.status, run.context["approved_by"]) == ("COMPLETE", "testing, another: 5")


def test_times_are_not_waited_for() -> None:
    def sleep_on_it(*, workflow: Workflow, context: OrderContext) -> None:
        wait_for_time(workflow, "a month", timedelta(days=30))

    run = testing.run(with_step("review", Step(sleep_on_it)), PAYLOAD)
    assert (run.status, run.called("charge")) == ("COMPLETE", 1)


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


def order_each(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
    skus = workflow.payload["skus"]
    ended = wait_for_children(workflow, "orders", [Child("order", {"sku": sku}) for sku in skus], timeout=timedelta(1))
    return {"parcel": ", ".join(child.status for child in ended)}


ORDERS = WorkflowDefinition(name="orders", context_class=OrderContext, steps=[order_each])


def test_children_are_run_too() -> None:
    waiting = with_step("review", Step(pay))
    run = testing.run(ORDERS, {"skus": ["A", "B"]}, children=[waiting], signals={"payment.confirmed": {"by": "ada"}})
    assert run.context["parcel"] == "COMPLETE, COMPLETE"
    assert run.workflow.children.count() == 2


def test_a_parent_waits_for_what_its_children_wait_for() -> None:
    waiting = with_step("review", Step(pay))
    assert (
        testing.run(ORDERS, {"skus": ["A"]}, children=[waiting]).workflow.waiting_for
        == "the workflows that it has started (orders)"
    )
    late = testing.run(ORDERS, {"skus": ["A"]}, children=[waiting], overdue=["orders"])
    assert (late.status, late.workflow.last_error_code) == ("FAILED", "wait_expired")


def test_what_waits_for_anything_else_is_given_back_as_it_is() -> None:
    def wait(*, workflow: Workflow, context: OrderContext) -> None:
        raise Suspend("a parcel", wake_on=["parcel"], until=workflow.created_at + timedelta(days=1))

    run = testing.run(with_step("ship", Step(wait)), PAYLOAD)
    assert (run.status, run.workflow.waiting_for) == ("PENDING", "a parcel")


def test_the_projects_own_definitions_are_known_again_afterwards() -> None:
    from workflows.definition import definitions

    before = list(definitions())
    testing.run(ORDER, PAYLOAD)
    assert list(definitions()) == before


# --- What it finds ------------------------------------------------------------------------------------


def not_undone(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> Mapping[str, Any] | None:
    raise StepError("No.", code="no_refunds")


def test_an_undo_that_does_not_work_is_found() -> None:
    wrong = with_step("charge", Step(charge, once=True, undo=not_undone, lookup=find_charge))
    with pytest.raises(AssertionError, match="The undo of charge failed 3 times"):
        testing.check_compensation(wrong, PAYLOAD, testing.Failure("ship"))


def test_an_undo_that_relies_on_what_is_not_on_the_ledger_is_found() -> None:
    def reserve_locally(*, workflow: Workflow, context: OrderContext) -> dict[str, str]:
        return {"reservation": "r"}

    def refund_reserved(*, workflow: Workflow, context: OrderContext, effect: KnownEffect) -> None:
        assert context.reservation is not None

    steps = [reserve_locally, Step(charge, once=True, undo=refund_reserved, lookup=find_charge), ship]
    wrong = WorkflowDefinition(name="order", context_class=OrderContext, steps=steps)
    with pytest.raises(AssertionError, match="The undo of charge failed 3 times"):
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


@pytest.mark.django_db(transaction=False, databases=["default", "journal"])
def test_a_test_without_real_transactions_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import transaction

    with transaction.atomic(), pytest.raises(RuntimeError, match="give the test real transactions"):
        testing.run(ORDER, PAYLOAD)


def test_a_failure_that_is_not_reached_is_no_proof() -> None:
    def wait(*, workflow: Workflow, context: OrderContext) -> None:
        raise Suspend("a parcel", wake_on=["parcel"], until=workflow.created_at + timedelta(days=1))

    waits_first = WorkflowDefinition(name="order", context_class=OrderContext, steps=[wait, *STEPS])
    with pytest.raises(AssertionError, match="ship fails: it is not reached"):
        testing.check_compensation(waits_first, PAYLOAD, testing.Failure("ship"))


def test_a_failure_that_is_swallowed_is_found() -> None:
    wrong = with_step("ship", Step(ship, once=True, best_effort=True))
    with pytest.raises(AssertionError, match=r"ship fails, and yet: .*COMPLETE"):
        testing.check_compensation(wrong, PAYLOAD, testing.Failure("ship"))


def test_the_row_is_as_a_submission_makes_it() -> None:
    steps = [check_order]
    linked = WorkflowDefinition(
        name="order", context_class=OrderContext, steps=steps, linking_id="sku", expires_after=timedelta(hours=1)
    )
    workflow = testing.run(linked, PAYLOAD).workflow
    assert workflow.linking_id == "A-1"
    assert workflow.expires_at is not None


# --- Calls that repeat without being `once` -----------------------------------------------------------


def tell(*, workflow: Workflow, context: OrderContext) -> None:
    shop.do("mail", key_for(workflow, "tell"))


def in_a_thread(*, workflow: Workflow, context: OrderContext) -> None:
    thread = Thread(target=tell, kwargs={"workflow": workflow, "context": context})
    thread.start()
    thread.join()


TELL = Step(tell, best_effort=True)
REPEATED = r"The step tell of order ran 2 times.*Step\(tell, once=True.*Step\(tell, repeatable=True"


def order_of(*steps: Step | WorkflowStep) -> WorkflowDefinition:
    return WorkflowDefinition(name="order", context_class=OrderContext, steps=steps)


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

"""A worker that was stopped, has lost its row, and goes on: what only the holder may write, it does not write.

It is stopped right before each such statement in turn, its claim ends, and then the statement is sent. The fence in it
is all that is left: the worker does not know yet. The next worker finds everything as it was, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connections
from pydantic import BaseModel

from tests import engine
from tests.engine import define, last_attempt, make_due, outcomes, submit, work, worker
from workflows import operations
from workflows.definition import Step
from workflows.engine import compensation
from workflows.errors import ClaimLost, StepError, UnknownOutcome
from workflows.models import Attempt, Effect, ManualTask, Signal, Wait, Workflow
from workflows.signals import store, waking
from workflows.waits import Child, require_approval, wait_for_children, wait_for_signal, wait_for_time

pytestmark = engine.ENGINE

HOUR = timedelta(hours=1)


def run_late_at(statement: str) -> None:
    """Let a worker run that loses its row just before it sends this statement on the attempt log, and sends it then."""
    meanwhile = engine.at(statement, lambda: engine.terminate("default"), alias="attempt_log")
    with meanwhile, pytest.raises((ClaimLost, OperationalError)):
        worker().process_next()
    connections.close_all()


def tell(workflow: Workflow, name: str, payload: Mapping[str, Any]) -> None:
    store.store(source="shop", dedupe_key=name, name=name, workflow_id=workflow.pk, payload=payload)
    waking.wake(workflow.pk)


def again(workflow: Workflow) -> Workflow:
    make_due(workflow)
    return work(workflow)


def ada() -> User:
    return User.objects.create_superuser("ada")


# --- Waits --------------------------------------------------------------------------------------------


def await_paid(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": wait_for_signal(workflow, "payment", "paid", timeout=HOUR).payload["n"]}


def look_for_payment(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": wait_for_signal(workflow, "payment", "paid", timeout=HOUR, look=lambda: {"n": 9}).payload["n"]}


def cool_down(*, workflow: Workflow, context: Any) -> None:
    wait_for_time(workflow, "cool-down", HOUR)


def ask(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"text": require_approval(workflow, "review", question="May it go on?", timeout=HOUR).decided_by}


class Form(BaseModel):
    amount: int


def ask_for_amount(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"text": require_approval(workflow, "amount", question="How much?", form=Form, timeout=HOUR).decided_by}


def ask_for_a_yes(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    """The same question, as another release puts it."""
    return {"text": require_approval(workflow, "amount", question="How much?", timeout=HOUR).decided_by}


def await_child(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    if workflow.parent_id:
        return {}
    return {"number": len(wait_for_children(workflow, "parcels", [Child("test", {})], timeout=HOUR))}


@pytest.mark.parametrize("step", [await_paid, cool_down, ask, await_child])
def test_it_makes_no_wait(step: Any) -> None:
    define([step])
    workflow = submit()
    run_late_at("INSERT INTO workflows_wait")
    assert not Wait.objects.exists()
    assert not ManualTask.objects.exists()
    assert Workflow.objects.count() == 1
    assert work(workflow).waiting_for


def test_it_uses_no_signal_up() -> None:
    define([await_paid])
    workflow = work(submit())
    tell(workflow, "paid", {"n": 7})
    run_late_at("WITH candidate AS")
    assert Wait.objects.get().outcome == ""
    assert Signal.objects.get().closed_at is None
    assert work(workflow).context["number"] == 7


def test_it_records_nothing_that_it_has_found_by_itself() -> None:
    define([look_for_payment])
    workflow = submit()
    run_late_at("SET outcome = 'found'")
    assert Wait.objects.get().outcome == ""
    tell(workflow, "paid", {"n": 7})
    assert work(workflow).context["number"] == 7, "the signal came before anybody had an answer"


@pytest.mark.parametrize("step", [await_paid, cool_down])
def test_it_lets_no_wait_expire(step: Any) -> None:
    define([step])
    workflow = work(submit())
    engine.expire(workflow)
    run_late_at("UPDATE workflows_wait SET outcome")
    assert Wait.objects.get().outcome == ""
    assert work(workflow).status == ("FAILED" if step is await_paid else "COMPLETE")


def test_it_records_no_decision() -> None:
    define([ask])
    workflow = work(submit())
    operations.approve(ManualTask.objects.get().pk, user=ada())
    run_late_at("WITH decision AS")
    assert Wait.objects.get().outcome == ""
    assert Signal.objects.get().closed_at is None
    assert work(workflow).context["text"] == "ada"


def test_it_closes_no_question() -> None:
    define([ask])
    workflow = work(submit())
    engine.expire(workflow)
    run_late_at("SET state = 'expired'")
    assert (ManualTask.objects.get().state, Wait.objects.get().outcome) == ("open", "")
    assert "expired" not in engine.kinds(workflow)
    assert work(workflow).last_error_code == "approval_expired"


def test_it_withdraws_no_question() -> None:
    """The next one may run another release, which takes the answer."""
    define([ask_for_amount])
    workflow = work(submit())
    answer = {"approved": True, "by": "ada", "reason": "", "answer": {"amount": "many"}}
    tell(workflow, ManualTask.objects.get().signal_name, answer)
    make_due(workflow)
    run_late_at("SET superseded = true")
    assert not Wait.objects.get().superseded
    define([ask_for_a_yes])
    assert work(workflow).context["text"] == "ada"


def test_it_withdraws_no_question_that_has_answered_itself() -> None:
    """The next one may run another release, which has no such lookup."""

    def charge(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {}

    def refuse(*, workflow: Workflow, context: Any, effect: Any = None) -> None:
        raise StepError("No.")

    def find(*, workflow: Workflow, context: Any, effect: Any) -> dict[str, Any]:
        return {}

    define([Step(charge, once=True, undo=refuse), refuse])
    workflow = work(submit())
    for _ in range(compensation.MAX_UNDO_FAILURES + 1):
        workflow = again(workflow)
    assert ManualTask.objects.get().state == "open"
    define([Step(charge, once=True, undo=refuse, undo_lookup=find), refuse])
    make_due(workflow)
    run_late_at("SET state = 'closed'")
    assert (ManualTask.objects.get().state, Wait.objects.get().superseded) == ("open", False)
    assert again(workflow).status == "FAILED"


def test_it_joins_no_children() -> None:
    """Neither the end of the wait is recorded, nor the signal closed that tells of it."""
    define([await_child])
    workflow = work(submit())
    child = workflow.children.get()
    work(child)
    run_late_at("SET outcome = 'ended'")
    assert Wait.objects.get().outcome == ""
    assert Signal.objects.get().closed_at is None
    assert work(workflow).context["number"] == 1


# --- Effects ------------------------------------------------------------------------------------------


class Service:
    """Remembers what it was asked, and loses each answer that it is told to lose."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.lost: list[str] = []
        self.found: Mapping[str, Any] | None = None

    def _asked(self, what: str) -> dict[str, Any]:
        self.log.append(what)
        if what in self.lost:
            raise UnknownOutcome("no answer")
        return {"number": 1}

    def pay(self, *, workflow: Workflow, context: Any) -> dict[str, Any]:
        return self._asked("pay")

    def refund(self, *, workflow: Workflow, context: Any, effect: Any) -> dict[str, Any]:
        return self._asked("refund")

    def find(self, *, workflow: Workflow, context: Any, effect: Any) -> Mapping[str, Any] | None:
        self.log.append("find")
        return self.found

    def step(self, **policy: Any) -> Step:
        return Step(self.pay, once=True, **policy)


@pytest.fixture
def service() -> Service:
    return Service()


def fail(*, workflow: Workflow, context: Any) -> None:
    raise StepError("No.", code="refused")


def test_it_starts_no_call(service: Service) -> None:
    define([service.step()])
    workflow = submit()
    run_late_at("INSERT INTO workflows_effect")
    assert (service.log, list(Effect.objects.all())) == ([], [])
    assert work(workflow).status == "COMPLETE"
    assert service.log == ["pay"]


def test_it_starts_no_undo(service: Service) -> None:
    define([service.step(undo=service.refund), fail])
    workflow = work(submit())
    run_late_at("INSERT INTO workflows_effect")
    assert (service.log, Effect.objects.get().state) == (["pay"], "done")
    assert work(workflow).status == "FAILED"
    assert service.log == ["pay", "refund"]


def test_it_looks_nothing_up(service: Service) -> None:
    """A lookup may be long: the row is proved to be held before it, too."""
    service.lost = ["pay"]
    define([service.step(lookup=service.find)])
    workflow = work(submit())
    make_due(workflow)
    run_late_at("SELECT pg_xact_status")
    assert service.log == ["pay"]


@pytest.mark.parametrize("found", [None, {"number": 5}], ids=["not found", "found"])
def test_it_decides_on_no_call_in_doubt(service: Service, found: Mapping[str, Any] | None) -> None:
    service.lost, service.found = ["pay"], found
    define([service.step(lookup=service.find, settle=0)])
    workflow = work(submit())
    make_due(workflow)
    run_late_at("settled_by = %(settled_by)s")
    assert Effect.objects.get().state == "unknown"
    service.lost = []
    assert work(workflow).status == "COMPLETE"
    assert service.log.count("pay") == (2 if found is None else 1)


def test_it_gives_no_call_a_new_key(service: Service) -> None:
    """A person has said that it did not happen; it is the next worker that calls again."""
    service.lost = ["pay"]
    define([service.step(settle=0)])
    workflow = again(work(submit()))
    operations.reject(ManualTask.objects.get().pk, user=ada(), reason="Not there.")
    run_late_at("WITH old AS")
    assert [(effect.generation, effect.state) for effect in Effect.objects.all()] == [(1, "unknown")]
    service.lost = []
    assert work(workflow).status == "COMPLETE"
    assert [(effect.generation, effect.state) for effect in Effect.objects.order_by("id")] == [
        (1, "not_done"),
        (2, "done"),
    ]


def test_it_counts_no_failure_of_an_undo(service: Service) -> None:
    """Counted, the third one would ask a person although there were only two."""
    service.lost = ["refund"]
    define([service.step(undo=service.refund), fail])
    workflow = work(submit())
    run_late_at("SET undo_failures = ")
    assert Effect.objects.get(undo=False).undo_failures == 0
    service.lost = []
    assert work(workflow).status == "FAILED"


def test_a_person_settles_nothing_through_it(service: Service) -> None:
    """Neither that they have undone it by hand, nor that it is to be tried again."""
    define([service.step(undo=service.refund), fail])
    workflow = work(submit())
    Effect.objects.update(undo_failures=3)
    workflow = work(workflow)
    operations.approve(ManualTask.objects.get().pk, user=ada(), reason="It stays.", answer={"kept": True})
    run_late_at("settled_by = %(settled_by)s")
    assert Effect.objects.get().state == "done"
    assert work(workflow).status == "FAILED"
    assert Effect.objects.get().state == "kept"


# --- Attempts -----------------------------------------------------------------------------------------


def test_it_opens_no_attempt_and_closes_none() -> None:
    define([lambda *, workflow, context: None])
    workflow = submit()
    Attempt.objects.create(workflow=workflow, number=1, worker="rightful:1")
    run_late_at("INSERT INTO workflows_attempt")
    (rightful,) = Attempt.objects.all()
    assert (rightful.closed_at, engine.kinds(workflow)) == (None, [])


def test_it_opens_no_first_attempt_either() -> None:
    define([lambda *, workflow, context: None])
    workflow = submit()
    run_late_at("INSERT INTO workflows_attempt")
    assert not Attempt.objects.exists()
    assert work(workflow).status == "COMPLETE"
    assert last_attempt(workflow).number == 1


def test_what_it_was_told_after_it_had_lost_the_row_is_no_failure_of_the_step() -> None:
    def lose_it_and_fail(*, workflow: Workflow, context: Any) -> None:
        if Attempt.objects.filter(workflow=workflow.pk).count() == 1:
            engine.terminate("default")
            raise ValueError

    define([lose_it_and_fail])
    workflow = submit()
    with pytest.raises(ClaimLost):
        worker().process_next()
    connections.close_all()
    workflow = work(workflow)
    assert (workflow.status, outcomes(workflow)) == ("COMPLETE", {"lose_it_and_fail": "skipped"})
    assert last_attempt(workflow).number == 2


def test_what_it_was_told_after_it_had_lost_the_row_is_no_failure_of_the_undo(service: Service) -> None:
    """On a connection that is gone any error looks like the undo's own; three of them would be a person's to answer."""

    def lose_it_and_fail(*, workflow: Workflow, context: Any, effect: Any) -> None:
        engine.terminate("default")
        raise StepError("No.")

    define([service.step(undo=lose_it_and_fail), fail])
    work(submit())
    with engine.sent("attempt_log") as statements, pytest.raises(ClaimLost):
        worker().process_next()
    connections.close_all()
    assert Effect.objects.get(undo=False).undo_failures == 0
    assert not [sql for sql in statements if "SET undo_failures" in sql], "it was not even tried"

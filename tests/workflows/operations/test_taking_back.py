"""TAKE BACK: a wrong answer about a call, or about its undo, can be given again while nothing has built on it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models.functions import Now

from tests import engine
from tests.engine import define, kinds, make_due, submit, work, worker
from workflows import failpoints, inbox, operations
from workflows.definition import Retry, Step, WorkflowStep
from workflows.effects import KnownEffect, key_for
from workflows.errors import ClaimLost, NotAllowed, StepError, UnknownOutcome
from workflows.models import Attempt, Effect, Event, ManualTask, Signal, State, Workflow
from workflows.waits import require_approval, wait_for_signal

pytestmark = engine.ENGINE

YES = {"number": 9}
BY_HAND = {"kept": False, "reference": "re-9"}
WRONG = "I looked at another patient."


class Bank:
    """What was charged and refunded, under which key. The answer to the first charge is lost; refunds fail as told."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.refunded: list[str] = []
        self.refusals = 0

    def pay(self, *, workflow: Workflow, context: Any) -> dict[str, Any]:
        self.charged.append(key_for(workflow, "pay"))
        if len(self.charged) == 1:
            raise UnknownOutcome("no answer")
        return {"number": len(self.charged)}

    def refund(self, *, workflow: Workflow, context: Any, effect: KnownEffect) -> dict[str, Any]:
        if self.refusals:
            self.refusals -= 1
            raise StepError("No.", code="no_refunds")
        self.refunded.append(effect.undo_key)
        return {}

    def step(self, **policy: Any) -> Step:
        return Step(self.pay, **{"name": "pay", "once": True, "settle": 0, "returns": ("number",), **policy})


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def ada(transactional_db: None) -> User:
    return User.objects.create_superuser("ada")


def pause(*, workflow: Workflow, context: Any) -> None:
    wait_for_signal(workflow, "pause", "go", timeout=timedelta(hours=1))


def fail(*, workflow: Workflow, context: Any) -> None:
    raise StepError("No.", code="refused")


def ship(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"text": "p-1"}


def not_applicable(*, workflow: Workflow, context: Any) -> None: ...


def again(workflow: Workflow) -> Workflow:
    make_due(workflow)
    return work(workflow)


def to_rest(workflow: Workflow) -> Workflow:
    workflow.refresh_from_db()
    for _ in range(20):
        if workflow.status != "PENDING":
            return workflow
        workflow = again(workflow)
    raise AssertionError(f"still {workflow.waiting_for or workflow.current_step}")


def in_doubt(*steps: Step | WorkflowStep) -> tuple[Workflow, ManualTask]:
    """A workflow that asks whether its charge happened."""
    define(steps, retry=Retry(base_delay=0))
    workflow = again(work(submit()))
    assert workflow.waiting_for == "Did pay happen?"
    return workflow, ManualTask.objects.get()


def answer(task: ManualTask, user: User, said: dict[str, Any] | None) -> None:
    """Yes with these fields, or no."""
    if said is None:
        operations.reject(task.pk, user=user, reason="Not there.")
    else:
        operations.approve(task.pk, user=user, reason="Seen.", answer=said)


def take_back(task: ManualTask, user: User) -> str:
    return operations.take_back(task.pk, user=user, reason=WRONG)


def refused(task: ManualTask, user: User, why: str) -> None:
    """It stands, and everything is as it was."""
    before = list(Effect.objects.order_by("id").values()), list(Workflow.objects.values())
    state = ManualTask.objects.get(pk=task.pk).state
    with pytest.raises(NotAllowed, match=why):
        take_back(task, user)
    assert before == (list(Effect.objects.order_by("id").values()), list(Workflow.objects.values()))
    assert ManualTask.objects.get(pk=task.pk).state == state
    assert not Event.objects.filter(kind="taken_back").exists()


def asked_again(workflow: Workflow) -> ManualTask:
    """The next run asks, by a new task, and does nothing else."""
    assert worker().process_next(), "it is not due"
    workflow.refresh_from_db()
    task = ManualTask.objects.latest("id")
    assert (task.state, workflow.waiting_for) == ("open", task.question)
    return task


def states() -> dict[str, str]:
    effects = Effect.objects.order_by("generation", "undo")
    return {f"undo {e.step}" if e.undo else f"{e.step} {e.generation}": e.state for e in effects}


# --- Whether a call happened --------------------------------------------------------------------------


@pytest.mark.parametrize("said", [YES, None], ids=["yes", "no"])
def test_an_answer_that_nobody_has_read_is_as_if_it_had_never_come(
    bank: Bank, ada: User, said: dict[str, Any] | None
) -> None:
    workflow, task = in_doubt(bank.step())
    answer(task, ada, said)
    assert take_back(task, ada) == "It is taken back; the workflow asks again at once."
    task.refresh_from_db()
    assert (task.state, task.decided_by, states()) == ("taken_back", ada, {"pay 1": "unknown"})
    assert not Signal.objects.filter(closed_at=None).exists()
    answer(asked_again(workflow), ada, YES if said is None else None)
    assert to_rest(workflow).status == "COMPLETE"
    assert len(bank.charged) == (1 if said is None else 2)


def test_a_yes_that_the_workflow_waits_behind_is_taken_back_and_then_it_did_not_happen(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(), pause)
    answer(task, ada, YES)
    workflow = work(workflow)
    assert (workflow.context["number"], states()) == (9, {"pay 1": "done"})
    take_back(task, ada)
    effect = Effect.objects.get()
    assert (effect.state, effect.result, effect.settled_at, effect.settled_by) == ("unknown", None, None, "")
    answer(asked_again(workflow), ada, None)
    inbox.send(source="test", dedupe_key="1", name="go", workflow_id=workflow.pk, payload={})
    workflow = to_rest(workflow)
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 2)
    assert bank.charged == [f"{workflow.key}:pay", f"{workflow.key}:pay:2"]


def crash(at: str) -> None:
    """The worker dies there, and its supervisor tells."""

    def die() -> None:
        raise ClaimLost

    with failpoints.armed(at, die), pytest.raises(ClaimLost):
        worker().process_next()


def told(**fields: Any) -> None:
    Attempt.objects.filter(closed_at=None).update(**{"closed_at": Now(), "outcome": "crashed", **fields})


def test_a_no_whose_new_call_was_not_begun_is_taken_back_and_then_it_happened(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step())
    answer(task, ada, None)
    crash("before_intent:pay")
    assert states() == {"pay 1": "not_done", "pay 2": "not_done"}
    told()
    take_back(task, ada)
    assert states() == {"pay 1": "unknown"}
    answer(asked_again(workflow), ada, YES)
    assert to_rest(workflow).status == "COMPLETE"
    assert bank.charged == [f"{workflow.key}:pay"]


def test_an_answer_whose_worker_died_before_it_decided_is_taken_back(bank: Bank, ada: User) -> None:
    """It is recorded as the wait's outcome, and every later attempt would meet it."""
    workflow, task = in_doubt(bank.step())
    answer(task, ada, YES)
    task.wait.outcome, task.wait.result, task.wait.resolved_at = "approved", {"by": "ada", "answer": YES}, Now()
    task.wait.save()
    Signal.objects.update(closed_at=Now())
    take_back(task, ada)
    answer(asked_again(workflow), ada, None)
    assert to_rest(workflow).context["number"] == 2


def test_nobody_can_take_back_what_a_worker_has_just_left_open(bank: Bank, ada: User) -> None:
    """The last statement of a worker that lost its claim may be on its way: the new call's INTENT."""
    _, task = in_doubt(bank.step())
    answer(task, ada, None)
    crash("before_intent:pay")
    refused(task, ada, "A worker was at it a moment ago")
    told()
    take_back(task, ada)


def test_a_no_whose_new_call_was_begun_stands(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(), pause)
    answer(task, ada, None)
    work(workflow)
    refused(task, ada, "pay was begun since")
    Effect.objects.filter(generation=2).update(state="not_done", result=None)  # refused, but it was sent
    refused(task, ada, "pay was begun since")
    for under_way in ({"state": "skipped"}, {"state": "intent", "settled_at": None, "settled_by": ""}):
        Effect.objects.filter(generation=2).update(**under_way)
        refused(task, ada, "pay was begun since")


@pytest.mark.parametrize("state", ["intent", "done", "not_done", "unknown"])
def test_an_answer_stands_once_another_call_was_begun(bank: Bank, ada: User, state: str) -> None:
    workflow, task = in_doubt(bank.step(), Step(ship, once=True), pause)
    answer(task, ada, YES)
    work(workflow)
    Effect.objects.filter(step="ship").update(state=state)
    refused(task, ada, "ship was begun since")


def test_a_step_that_did_not_apply_has_built_on_nothing(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(
        Step(not_applicable, once=True), bank.step(), Step(not_applicable, once=True, name="n"), pause
    )
    answer(task, ada, YES)
    again(work(workflow))
    take_back(task, ada)
    asked_again(workflow)


def test_what_was_called_before_the_answer_does_not_matter(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(Step(ship, once=True), bank.step(), pause)
    answer(task, ada, YES)
    work(workflow)
    take_back(task, ada)
    asked_again(workflow)
    assert states() == {"ship 1": "done", "pay 1": "unknown"}


def test_an_answer_of_a_complete_workflow_stands(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step())
    answer(task, ada, YES)
    work(workflow)
    refused(task, ada, "Its workflow is complete")


def test_a_call_that_a_lookup_has_found_meanwhile_stands(bank: Bank, ada: User) -> None:
    """In a release that has one."""
    workflow, task = in_doubt(bank.step())
    answer(task, ada, None)
    define([bank.step(lookup=lambda **_: {"number": 7}), pause])
    work(workflow)
    refused(task, ada, "What became of pay has become known in another way since")


def test_a_result_that_came_late_stands(bank: Bank, ada: User) -> None:
    """Of the attempt that made the call, after the question was asked: it is the truth."""
    _, task = in_doubt(bank.step())
    answer(task, ada, YES)
    Effect.objects.update(state="done", result={"number": 1}, settled_by="call", settled_at=Now())
    refused(task, ada, "What became of pay has become known in another way since")
    task.wait.outcome, task.wait.result, task.wait.resolved_at = "approved", {"by": "ada", "answer": YES}, Now()
    task.wait.save()  # a worker has read the answer, and then died
    refused(task, ada, "What became of pay has become known in another way since")


def test_while_a_worker_holds_the_row_nothing_is_taken_back(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(), pause)
    answer(task, ada, YES)
    work(workflow)
    with engine.another_connection() as other, other.transaction():
        other.execute("SELECT 1 FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [workflow.pk])
        refused(task, ada, "It is running right now")
    take_back(task, ada)


def test_an_answer_is_taken_back_once(bank: Bank, ada: User) -> None:
    _, task = in_doubt(bank.step())
    answer(task, ada, YES)
    take_back(task, ada)
    with pytest.raises(NotAllowed, match="It is taken back already"):
        take_back(task, ada)
    with pytest.raises(NotAllowed, match="Its answer was taken back; the workflow asks anew"):
        answer(task, ada, YES)


def test_an_answer_that_was_taken_back_is_no_decision_that_a_cancellation_has_to_heed(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step())
    answer(task, ada, YES)
    take_back(task, ada)
    told = operations.cancel(workflow.pk, user=ada, reason="By phone.", open_tasks=[task.pk])
    assert told == "It is cancelled."


def test_it_needs_an_answer_a_reason_and_the_permission(bank: Bank, ada: User) -> None:
    _, task = in_doubt(bank.step())
    refused(task, ada, "Nobody has answered it")
    answer(task, ada, YES)
    with pytest.raises(NotAllowed, match="Say why"):
        operations.take_back(task.pk, user=ada, reason=" ")
    with pytest.raises(PermissionDenied):
        operations.take_back(task.pk, user=User.objects.create_user("nobody"), reason=WRONG)
    with pytest.raises(NotAllowed, match="There is no such task"):
        operations.take_back(task.pk + 1, user=ada, reason=WRONG)
    ManualTask.objects.update(team="bookkeepers")
    ben = User.objects.create_user("ben")
    ben.user_permissions.set(ada_permissions())
    refused(task, ben, "It is for the team bookkeepers")


def ada_permissions() -> Any:
    from django.contrib.auth.models import Permission

    return Permission.objects.filter(codename="decide_manualtask")


def test_what_a_step_has_asked_is_not_taken_back(ada: User) -> None:
    """Its answer is a part of the run, as its author has written it."""

    def ask(*, workflow: Workflow, context: Any) -> None:
        require_approval(workflow, "review", question="May it?", timeout=timedelta(hours=1))

    define([ask, pause])
    work(submit())
    operations.approve(ManualTask.objects.get().pk, user=ada)
    refused(ManualTask.objects.get(), ada, "Only what was said of a call, or of its undo")


def test_the_history_says_who_took_what_back_and_why(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step())
    answer(task, User.objects.create_superuser("ben"), YES)
    take_back(task, ada)
    event = Event.objects.latest("id")
    assert (event.kind, event.actor, event.step) == ("taken_back", "ada", "pay")
    assert event.detail == {"task": task.pk, "answered_by": "ben", "said": "happened", "reason": WRONG}
    assert kinds(workflow)[-2:] == ["approved", "taken_back"]


# --- Of a workflow that has failed, or is being undone ------------------------------------------------


def test_a_failed_workflow_stays_failed_and_asks_when_it_is_retried(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(), fail)
    answer(task, ada, YES)
    assert work(workflow).status == "FAILED"
    assert take_back(task, ada) == "It is taken back; the workflow asks again when somebody retries it."
    assert (states(), Workflow.objects.get().status) == ({"pay 1": "unknown"}, "FAILED")
    operations.retry(workflow.pk, user=ada)
    asked_again(workflow)
    assert len(bank.charged) == 1


def test_an_answer_that_was_put_aside_with_its_workflow_does_not_come_back(bank: Bank, ada: User) -> None:
    """A retry takes out again what was told the workflow before."""

    def refuse_later(*, workflow: Workflow, context: Any) -> None:
        if Attempt.objects.filter(workflow=workflow).count() == 3:
            raise StepError("No.")

    workflow, task = in_doubt(refuse_later, bank.step(), pause)
    answer(task, ada, YES)
    assert work(workflow).status == "FAILED"
    assert Signal.objects.get().ignored
    take_back(task, ada)
    operations.retry(workflow.pk, user=ada)
    asked_again(workflow)
    assert not Signal.objects.filter(closed_at=None).exists()


def test_a_failed_workflow_whose_call_would_have_to_be_undone_is_compensated_again(bank: Bank, ada: User) -> None:
    """At rest, with a charge in doubt, nobody would be asked."""
    workflow, task = in_doubt(bank.step(undo=bank.refund))
    operations.cancel(workflow.pk, user=ada, reason="By phone.", open_tasks=[])
    answer(task, ada, None)
    assert to_rest(workflow).status == "FAILED"
    told = "It is taken back; the workflow is taken up again to undo it, and asks at once."
    assert take_back(task, ada) == told
    row = Workflow.objects.with_state().get()
    assert (row.state, row.completed_at, kinds(workflow)[-1]) == (State.COMPENSATING, None, "compensating")
    answer(asked_again(workflow), ada, YES)
    assert Workflow.objects.with_state().get(pk=to_rest(workflow).pk).state == State.CANCELLED
    assert (len(bank.charged), bank.refunded) == (1, [f"{workflow.key}:pay:undo"])


def test_an_answer_is_taken_back_while_the_workflow_is_undone(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(undo=bank.refund))
    operations.cancel(workflow.pk, user=ada, reason="By phone.", open_tasks=[])
    answer(task, ada, None)
    take_back(task, ada)
    answer(asked_again(workflow), ada, YES)
    to_rest(workflow)
    assert (len(bank.charged), len(bank.refunded)) == (1, 1)


def test_what_was_undone_since_stands(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(undo=bank.refund), fail)
    answer(task, ada, YES)
    assert to_rest(workflow).status == "FAILED"
    assert bank.refunded
    refused(task, ada, "What became of pay has become known in another way since")


def test_a_call_whose_undo_was_begun_stands(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(undo=bank.refund), fail)
    bank.refusals = 3
    answer(task, ada, YES)
    again(again(workflow))
    assert states() == {"pay 1": "done", "undo pay": "not_done"}
    refused(task, ada, "The undo of pay was begun since")


# --- Whether an undo is dealt with --------------------------------------------------------------------


def undo_in_doubt(bank: Bank, *before: Step | WorkflowStep, **policy: Any) -> tuple[Workflow, ManualTask]:
    """A workflow whose refund has failed three times."""
    bank.charged, bank.refusals = ["before"], 3
    define([*before, bank.step(undo=bank.refund, **policy), fail], retry=Retry(base_delay=0))
    workflow = work(submit())
    for _ in range(4):
        workflow = again(workflow)
    assert workflow.waiting_for == "The undo of pay failed 3 times. Is it dealt with?"
    return workflow, ManualTask.objects.get()


@pytest.mark.parametrize("said", [BY_HAND, {"kept": True}, None], ids=["by hand", "kept", "try again"])
def test_an_answer_about_an_undo_that_nobody_has_read_is_taken_back(
    bank: Bank, ada: User, said: dict[str, Any] | None
) -> None:
    workflow, task = undo_in_doubt(bank)
    answer(task, ada, said)
    take_back(task, ada)
    assert states() == {"pay 1": "done", "undo pay": "not_done"}
    assert not bank.refunded
    answer(asked_again(workflow), ada, None)
    to_rest(workflow)
    assert len(bank.refunded) == 1


@pytest.mark.parametrize("said", [BY_HAND, {"kept": True}], ids=["by hand", "kept"])
def test_what_was_dealt_with_wrongly_is_asked_again_though_the_workflow_has_failed(
    bank: Bank, ada: User, said: dict[str, Any]
) -> None:
    workflow, task = undo_in_doubt(bank)
    answer(task, ada, said)
    assert to_rest(workflow).status == "FAILED"
    take_back(task, ada)
    assert states() == {"pay 1": "done", "undo pay": "unknown" if said == BY_HAND else "not_done"}
    assert Effect.objects.get(undo=False).result == {"number": 2}
    assert Effect.objects.get(undo=True).result is None
    answer(asked_again(workflow), ada, None)
    assert to_rest(workflow).status == "FAILED"
    assert bank.refunded == [f"{workflow.key}:pay:undo"]


def test_what_was_undone_by_hand_without_any_call_leaves_no_trace_of_one(bank: Bank, ada: User) -> None:
    define([bank.step(undo=bank.refund), fail])
    bank.charged = ["before"]
    workflow = work(submit())
    define([bank.step(), fail])  # a release that lacks the undo
    work(workflow)
    task = ManualTask.objects.get()
    answer(task, ada, BY_HAND)
    to_rest(workflow)
    assert states() == {"pay 1": "undone", "undo pay": "done"}
    take_back(task, ada)
    assert states() == {"pay 1": "done"}
    asked_again(workflow)


def test_an_undo_that_is_being_tried_again_is_not_asked_about(bank: Bank, ada: User) -> None:
    workflow, task = undo_in_doubt(bank)
    bank.refusals = 1
    answer(task, ada, None)
    work(workflow)
    refused(task, ada, "The undo is being tried again")


def test_an_answer_about_an_undo_stands_once_the_next_one_was_begun(bank: Bank, ada: User) -> None:
    reserve = Step(ship, name="reserve", once=True, undo=lambda **_: None)
    workflow, task = undo_in_doubt(bank, reserve)
    answer(task, ada, BY_HAND)
    assert to_rest(workflow).status == "FAILED"
    refused(task, ada, "The undo of reserve was begun since")


def test_what_was_wrongly_undone_by_hand_is_not_called_again_by_a_retry(bank: Bank, ada: User) -> None:
    """The retry would charge again: taken back before it runs, the first charge stands."""
    workflow, task = undo_in_doubt(bank)
    answer(task, ada, BY_HAND)
    to_rest(workflow)
    operations.retry(workflow.pk, user=ada)
    assert take_back(task, ada) == "It is taken back; the workflow has been retried, and goes on with it as done."
    define([bank.step(undo=bank.refund)])
    assert to_rest(workflow).status == "COMPLETE"
    assert bank.charged == ["before", f"{workflow.key}:pay"]


def test_an_answer_to_an_earlier_question_stands(bank: Bank, ada: User) -> None:
    workflow, task = undo_in_doubt(bank)
    answer(task, ada, {"kept": True})
    to_rest(workflow)
    operations.retry(workflow.pk, user=ada)
    refused(task, ada, "What became of pay has become known in another way since")  # a retry counts it as done
    bank.refusals = 3
    for _ in range(5):
        again(workflow)
    second = ManualTask.objects.latest("id")
    answer(second, ada, {"kept": True})
    to_rest(workflow)
    refused(task, ada, "The question has been asked anew since")
    take_back(second, ada)

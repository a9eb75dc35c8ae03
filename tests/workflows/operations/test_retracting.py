"""RETRACT: a wrong answer about a call can be given again while nothing has built on it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models.functions import Now

from tests import engine
from tests.engine import again, define, submit, work, worker
from tests.workflows.features.by_hand.till import say
from tests.workflows.operations.bank import (
    WRONG,
    YES,
    Bank,
    answer,
    asked_again,
    in_doubt,
    moved,
    not_applicable,
    pause,
    refused,
    retract,
    ship,
    states,
)
from tests.workflows.operations.people import held, user
from tests.workflows.operations.two import known
from tests.workflows.undoing import fail, to_rest
from workflows import failpoints, operations
from workflows.definition import Step
from workflows.effects import key_for
from workflows.errors import ClaimLost, NotAllowed, StepError
from workflows.features.by_hand import operations as by_hand
from workflows.models import Attempt, Effect, Event, ManualTask, Signal, Wait, Workflow
from workflows.operations.payments import would_charge_again
from workflows.signals import store
from workflows.waits import require_approval

pytestmark = engine.ENGINE


def crash(at: str) -> None:
    """The worker dies there, and its supervisor tells."""

    def die() -> None:
        raise ClaimLost

    with failpoints.armed(at, die), pytest.raises(ClaimLost):
        worker().process_next()


def read_yes() -> None:
    """A worker has read the yes, and then died."""
    Wait.objects.update(outcome="approved", result={"by": "ada", "answer": YES}, resolved_at=Now())


def told(**fields: Any) -> None:
    Attempt.objects.filter(closed_at=None).update(**{"closed_at": Now(), "outcome": "crashed", **fields})


@pytest.mark.parametrize("said", [YES, None], ids=["yes", "no"])
def test_an_answer_that_nobody_has_read_is_as_if_it_had_never_come(
    bank: Bank, ada: User, said: dict[str, Any] | None
) -> None:
    workflow, task = in_doubt(bank.step())
    answer(task, User.objects.create_superuser("ben"), said)
    assert retract(task, ada) == "It is retracted; the workflow asks again at once."
    task.refresh_from_db()
    assert (task.state, states()) == ("taken_back", {"pay 1": "unknown"})
    event, said_so = Event.objects.latest("id"), "happened" if said else "did_not_happen"
    assert (event.kind, event.actor, event.step) == ("taken_back", "ada", "pay")
    assert event.detail == {"task": task.pk, "answered_by": "ben", "said": said_so, "reason": WRONG}
    assert not Signal.objects.filter(closed_at=None).exists()
    with pytest.raises(NotAllowed, match="It is retracted already"):
        retract(task, ada)
    with pytest.raises(NotAllowed, match="Its answer was retracted; the workflow asks again"):
        answer(task, ada, YES)
    answer(asked_again(workflow), ada, YES if said is None else None)
    assert to_rest(workflow).status == "COMPLETE"
    assert len(bank.charged) == (1 if said is None else 2)


def test_a_yes_that_the_workflow_waits_behind_is_retracted_and_then_it_did_not_happen(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(), pause)
    answer(task, ada, YES)
    workflow = work(workflow)
    assert (workflow.context["number"], states()) == (9, {"pay 1": "done"})
    with held(workflow):
        refused(task, ada, "It is running right now")
    retract(task, ada)
    effect = Effect.objects.get()
    assert (effect.state, effect.result, effect.settled_at, effect.settled_by) == ("unknown", None, None, "")
    answer(asked_again(workflow), ada, None)
    store.send(source="test", dedupe_key="1", name="go", workflow_id=workflow.pk, payload={})
    workflow = to_rest(workflow)
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 2)
    assert bank.charged == [f"{workflow.key}:pay", f"{workflow.key}:pay:2"]


def test_a_no_whose_new_call_was_not_started_is_retracted_and_then_it_happened(bank: Bank, ada: User) -> None:
    """Left in doubt, its generation would be asked about, and not the call that was made."""
    workflow, task = in_doubt(bank.step())
    answer(task, ada, None)
    crash("before_intent:pay")
    assert states() == {"pay 1": "not_done", "pay 2": "not_done"}
    # The last statement of a worker that lost its claim may be on its way: the new call's INTENT.
    refused(task, ada, "A worker was at it a moment ago")
    told()
    moved(where="generation = 2")
    retract(task, ada)
    assert states() == {"pay 1": "unknown"}
    answer(asked_again(workflow), ada, YES)
    assert to_rest(workflow).status == "COMPLETE"
    assert bank.charged == [f"{workflow.key}:pay"]


def test_an_answer_whose_worker_died_before_it_decided_is_retracted(bank: Bank, ada: User) -> None:
    """It is recorded as the wait's outcome, and every later attempt would meet it."""
    workflow, task = in_doubt(bank.step())
    answer(task, ada, YES)
    read_yes()
    Signal.objects.update(closed_at=Now())
    retract(task, ada)
    answer(asked_again(workflow), ada, None)
    assert to_rest(workflow).context["number"] == 2


def test_a_no_whose_new_call_was_started_stands(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(), pause)
    answer(task, ada, None)
    work(workflow)
    moved(where="generation = 2")
    refused(task, ada, "“Pay” was started since")
    Effect.objects.filter(generation=2).update(state="not_done", result=None)  # refused by the call, but it was sent
    refused(task, ada, "“Pay” was started since")
    for under_way in ({"state": "skipped"}, {"state": "intent", "settled_at": None, "settled_by": ""}):
        Effect.objects.filter(generation=2).update(**under_way)
        refused(task, ada, "“Pay” was started since")


def test_an_answer_stands_once_another_call_was_started(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(), Step(ship, once=True), pause)
    answer(task, ada, YES)
    work(workflow)
    moved(where="step = 'ship'")
    for state, by in (("intent", ""), ("done", "call"), ("not_done", "ben"), ("unknown", "")):
        Effect.objects.filter(step="ship").update(state=state, settled_by=by)
        refused(task, ada, "“Ship” was started since")
    Effect.objects.filter(step="ship").update(state="not_done", settled_by="call", undo=True)
    refused(task, ada, "The reversal of “Ship” was started since")


def test_a_wrong_reference_that_the_next_service_has_refused_is_retracted(bank: Bank, ada: User) -> None:
    keys = []

    def ship_it(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        keys.append(key_for(workflow, "ship_it"))
        if context.number == 9:
            raise StepError("There is no payment of this number.", code="unknown_payment")
        return ship(workflow=workflow, context=context)

    told = Step(ship_it, name="tell", once=True, best_effort=True)
    workflow, task = in_doubt(bank.step(), told, Step(ship_it, once=True))
    answer(task, ada, YES)
    assert work(workflow).status == "FAILED"
    assert retract(task, ada) == "It is retracted; the workflow asks again when somebody retries it."
    operations.retry(workflow.pk, user=ada, reason="The other one.")
    answer(asked_again(workflow), ada, None)
    assert to_rest(workflow).status == "COMPLETE"
    assert (len(bank.charged), states()["pay 2"], states()["ship_it 2"]) == (2, "done", "done")
    assert states()["tell 2"] == "done", "what was passed over for the wrong answer is made, too"
    assert keys[1::2] == [f"{workflow.key}:ship_it", f"{workflow.key}:ship_it:2"], "a key that was sent has one content"


def test_what_is_retracted_first_does_not_keep_a_wrong_answer_in_place(bank: Bank, ada: User) -> None:
    """A call by hand, and what its own retraction has given a new key: none of that was ever sent."""
    ship_it = Step(fail, name="ship_it", once=True, returns=("text",))
    workflow, task = in_doubt(bank.step(), ship_it, Step(fail, name="tell", once=True, returns=()))
    answer(task, ada, YES)
    say(work(workflow), ada, result={"text": "p-1"})
    assert work(workflow).current_step == "tell"
    by_hand.retract(workflow.pk, user=ada, reason=WRONG, seen=by_hand.said_by_hand(workflow))
    retract(task, ada)


def test_a_declined_card_is_not_taken_for_a_charge_by_hand_that_was_retracted(bank: Bank, ada: User) -> None:
    """A retry of that takes a lead and a second person, and says that the card is charged again."""
    known(bank.step(name="register"), Step(fail, name="pay", once=True, returns=("number",)))
    workflow = again(work(submit()))
    answer(task := ManualTask.objects.get(), ada, YES)
    assert work(workflow).current_step == "pay"
    retract(task, ada)
    assert (states()["pay 2"], would_charge_again(workflow.pk)) == ("not_done", set())


def test_a_step_that_did_not_apply_has_built_on_nothing(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(
        Step(not_applicable, once=True), bank.step(), Step(not_applicable, once=True, name="n"), pause
    )
    answer(task, ada, YES)
    again(work(workflow))
    retract(task, ada)
    asked_again(workflow)


def test_what_was_called_before_the_answer_does_not_matter(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(Step(ship, once=True), bank.step(), pause)
    answer(task, ada, YES)
    work(workflow)
    moved(minutes=10, where="step = 'ship'")
    retract(task, ada)
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
    refused(task, ada, "What became of “Pay” has become known in another way since")


def test_a_result_that_came_late_stands(bank: Bank, ada: User) -> None:
    """Of the attempt that made the call, after the question was asked: it is the truth."""
    _, task = in_doubt(bank.step())
    answer(task, ada, YES)
    Effect.objects.update(state="done", result={"number": 1}, settled_by="call", settled_at=Now())
    refused(task, ada, "What became of “Pay” has become known in another way since")
    read_yes()
    refused(task, ada, "What became of “Pay” has become known in another way since")


def test_an_answer_that_was_retracted_is_no_decision_that_a_cancellation_has_to_heed(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step())
    answer(task, ada, YES)
    retract(task, ada)
    told = operations.cancel(workflow.pk, user=ada, reason="By phone.", open_tasks=[task.pk])
    assert told == "It is cancelled."


def test_it_needs_an_answer_a_reason_and_the_permission(bank: Bank, ada: User) -> None:
    _, task = in_doubt(bank.step())
    refused(task, ada, "Nobody has answered it")
    answer(task, ada, YES)
    with pytest.raises(NotAllowed, match="Say why"):
        operations.retract(task.pk, user=ada, reason=" ")
    with pytest.raises(PermissionDenied):
        operations.retract(task.pk, user=User.objects.create_user("nobody"), reason=WRONG)
    with pytest.raises(NotAllowed, match="There is no such task"):
        operations.retract(task.pk + 1, user=ada, reason=WRONG)
    ManualTask.objects.update(team="bookkeepers")
    refused(task, user("ben", "decide"), "It is for the team bookkeepers")


def test_what_a_step_has_asked_is_not_retracted(ada: User) -> None:
    """Its answer is a part of the run, as its author has written it."""

    def ask(*, workflow: Workflow, context: Any) -> None:
        require_approval(workflow, "review", question="May it?", timeout=timedelta(hours=1))

    define([ask, pause])
    work(submit())
    operations.approve(ManualTask.objects.get().pk, user=ada)
    refused(ManualTask.objects.get(), ada, "You can retract only an answer about a call")

"""RETRACT, of a workflow that has failed or is being undone: also the answer to whether an undo is dealt with."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from tests import engine
from tests.engine import again, define, kinds, submit, work
from tests.workflows.operations.bank import (
    YES,
    Bank,
    answer,
    asked_again,
    in_doubt,
    moved,
    pause,
    refused,
    retract,
    ship,
    states,
)
from tests.workflows.undoing import BY_HAND, NEVER, fail, to_rest
from workflows import operations
from workflows.definition import Retry, Step, WorkflowStep
from workflows.effects import KnownEffect
from workflows.errors import StepError
from workflows.models import Attempt, Effect, ManualTask, Signal, State, Workflow

pytestmark = engine.ENGINE


# --- Whether a call happened --------------------------------------------------------------------------


def test_a_failed_workflow_stays_failed_and_asks_when_it_is_retried(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(), fail)
    answer(task, ada, YES)
    assert work(workflow).status == "FAILED"
    assert retract(task, ada) == "It is retracted; the workflow asks again when somebody retries it."
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
    retract(task, ada)
    operations.retry(workflow.pk, user=ada)
    asked_again(workflow)
    assert not Signal.objects.filter(closed_at=None).exists()


def test_a_failed_workflow_whose_call_would_have_to_be_undone_is_compensated_again(bank: Bank, ada: User) -> None:
    """At rest, with a charge in doubt, nobody would be asked."""
    workflow, task = in_doubt(bank.step(undo=bank.refund))
    operations.cancel(workflow.pk, user=ada, reason="By phone.", open_tasks=[])
    answer(task, ada, None)
    assert to_rest(workflow).status == "FAILED"
    told = "It is retracted; the workflow is taken up again to reverse it, and asks at once."
    assert retract(task, ada) == told
    row = Workflow.objects.with_state().get()
    assert (row.state, row.completed_at, kinds(workflow)[-1]) == (State.COMPENSATING, None, "compensating")
    answer(asked_again(workflow), ada, YES)
    assert Workflow.objects.with_state().get(pk=to_rest(workflow).pk).state == State.CANCELLED
    assert (len(bank.charged), bank.refunded) == (1, [f"{workflow.key}:pay:undo"])


def test_an_answer_is_retracted_while_the_workflow_is_undone(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(undo=bank.refund))
    operations.cancel(workflow.pk, user=ada, reason="By phone.", open_tasks=[])
    answer(task, ada, None)
    retract(task, ada)
    answer(asked_again(workflow), ada, YES)
    to_rest(workflow)
    assert (len(bank.charged), len(bank.refunded)) == (1, 1)


def test_a_call_whose_undo_was_started_or_done_stands(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(undo=bank.refund), fail)
    bank.refusals = 3
    answer(task, ada, YES)
    again(again(workflow))
    assert states() == {"pay 1": "done", "undo pay": "not_done"}
    refused(task, ada, "The reversal of “Pay” was started since")
    bank.refusals = 0
    assert to_rest(workflow).status == "FAILED"
    assert bank.refunded
    refused(task, ada, "What became of “Pay” has become known in another way since")


# --- Whether an undo is dealt with --------------------------------------------------------------------


def undo_in_doubt(bank: Bank, *before: Step | WorkflowStep, **policy: Any) -> tuple[Workflow, ManualTask]:
    """A workflow whose refund has failed three times."""
    bank.charged = ["before"]
    define([*before, bank.step(undo=bank.refund, **policy), fail], retry=Retry(base_delay=0))
    workflow = third_failure(bank, work(submit()))
    assert workflow.waiting_for == "The reversal of “Pay” failed 3 times. Has someone reversed it?"
    return workflow, ManualTask.objects.get()


def third_failure(bank: Bank, workflow: Workflow) -> Workflow:
    """The refund fails, twice before as it were, and a person is asked."""
    bank.refusals = 1
    Effect.objects.filter(undo=False, step="pay").update(undo_failures=2)
    return again(again(workflow))


def test_an_answer_about_an_undo_that_nobody_has_read_is_retracted(bank: Bank, ada: User) -> None:
    workflow, task = undo_in_doubt(bank)
    for said in (BY_HAND, {"kept": True}, None):
        answer(task, ada, said)
        retract(task, ada)
        assert states() == {"pay 1": "done", "undo pay": "not_done"}
        assert not bank.refunded
        task = asked_again(workflow)
    answer(task, ada, None)
    to_rest(workflow)
    assert len(bank.refunded) == 1


@pytest.mark.parametrize("said", [BY_HAND, {"kept": True}], ids=["by hand", "kept"])
def test_what_was_dealt_with_wrongly_is_asked_again_though_the_workflow_has_failed(
    bank: Bank, ada: User, said: dict[str, Any]
) -> None:
    """Without the row of the undo the ledger would forget a refund that may have been paid."""
    workflow, task = undo_in_doubt(bank)
    charged_at = Effect.objects.get(undo=False).settled_at
    answer(task, ada, said)
    assert to_rest(workflow).status == "FAILED"
    moved(minutes=10, where="undo")
    retract(task, ada)
    assert states() == {"pay 1": "done", "undo pay": "unknown" if said == BY_HAND else "not_done"}
    paid = Effect.objects.get(undo=False)
    assert (paid.result, paid.settled_at, charged_at is None) == ({"number": 2}, charged_at, False)
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
    moved(where="undo")
    retract(task, ada)
    assert states() == {"pay 1": "done"}
    asked_again(workflow)


def test_the_word_that_it_never_happened_is_retracted_and_asked_about_again(bank: Bank, ada: User) -> None:
    def refuse(*, workflow: Workflow, context: Any, effect: KnownEffect) -> None:
        raise StepError("No.", code="gone")

    define([bank.step(undo=bank.refund, lookup=refuse)], retry=Retry(base_delay=0, max_attempts=1))
    workflow = work(submit())
    for _ in range(4):
        workflow = again(workflow)
    task = ManualTask.objects.get()
    answer(task, ada, NEVER)
    to_rest(workflow)
    assert states() == {"pay 1": "not_done"}
    assert retract(task, ada) == "It is retracted; the workflow is taken up again to reverse it, and asks at once."
    assert states() == {"pay 1": "unknown"}
    second = asked_again(workflow)
    answer(second, ada, NEVER)
    to_rest(workflow)
    operations.retry(workflow.pk, user=ada)
    assert retract(second, ada) == "It is retracted; the workflow asks again at once."
    assert states() == {"pay 1": "unknown"}
    assert len(bank.charged) == 1


def test_an_undo_that_is_being_tried_again_is_not_asked_about(bank: Bank, ada: User) -> None:
    workflow, task = undo_in_doubt(bank)
    bank.refusals = 1
    answer(task, ada, None)
    work(workflow)
    refused(task, ada, "The reversal is being tried again")


def test_an_answer_about_an_undo_stands_once_the_next_one_was_started(bank: Bank, ada: User) -> None:
    reserve = Step(ship, name="reserve", once=True, undo=lambda **_: None)
    workflow, task = undo_in_doubt(bank, reserve)
    answer(task, ada, BY_HAND)
    assert to_rest(workflow).status == "FAILED"
    refused(task, ada, "The reversal of “Reserve” was started since")


def test_what_was_wrongly_undone_by_hand_is_not_called_again_by_a_retry(bank: Bank, ada: User) -> None:
    """The retry would charge again: retracted before it runs, the first charge stands."""
    workflow, task = undo_in_doubt(bank)
    answer(task, ada, BY_HAND)
    to_rest(workflow)
    operations.retry(workflow.pk, user=ada)
    assert retract(task, ada) == "It is retracted; the workflow has been retried, and goes on with it as done."
    define([bank.step(undo=bank.refund)])
    assert to_rest(workflow).status == "COMPLETE"
    assert bank.charged == ["before", f"{workflow.key}:pay"]


def test_an_answer_to_an_earlier_question_stands(bank: Bank, ada: User) -> None:
    workflow, task = undo_in_doubt(bank)
    answer(task, ada, {"kept": True})
    to_rest(workflow)
    operations.retry(workflow.pk, user=ada)
    refused(task, ada, "What became of “Pay” has become known in another way since")  # a retry counts it as done
    third_failure(bank, again(workflow))
    second = ManualTask.objects.latest("id")
    answer(second, ada, {"kept": True})
    to_rest(workflow)
    refused(task, ada, "The question has been asked again since")
    retract(second, ada)

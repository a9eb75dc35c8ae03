"""An undo that fails or crashes too often is a question to a person: is it dealt with, and how?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests import engine
from tests.engine import again, define, due_in, kinds, submit, work
from tests.workflows.undoing import BY_HAND, NEVER, World, ada, fail, flaky, states, to_rest
from workflows import operations
from workflows.definition import Retry
from workflows.engine import undo_doubts
from workflows.errors import NotAllowed, StepError
from workflows.models import Attempt, Effect, Event, ManualTask, Signal, State, Workflow

pytestmark = engine.ENGINE

# To deal with it by hand is to say how, and why.
NOT_ENOUGH: list[tuple[dict[str, Any] | None, str, str]] = [
    (BY_HAND, " ", "Say why"),
    (None, "Done.", "A yes is not enough"),
    ({}, "Done.", "kept"),
    ({"kept": None, "reference": "re-9"}, "Done.", "kept"),
    ({"kept": False}, "Done.", "reference_missing"),
    ({"kept": False, "reference": " "}, "Done.", "reference_missing"),
    ({"kept": False, "reference": None}, "Done.", "reference"),
    ({"kept": True, "reference": "re-9"}, "Done.", "reference_of_nothing"),
    ({**BY_HAND, "by": "me"}, "Done.", "by"),
    ({"kept": True, "never_happened": True}, "Done.", "kept_of_nothing"),
    ({**BY_HAND, "never_happened": True}, "Done.", "reference_of_nothing"),
    (NEVER, "Done.", "It is known by now that “Charge” happened"),
]


def exhausted(world: World) -> tuple[Workflow, ManualTask]:
    world.errors["undo charge"] = [StepError("No.", code="no_refunds")] * 3
    define([world.step("reserve"), world.step("charge"), fail], retry=Retry(base_delay=60))
    workflow = work(submit())
    for _ in range(3):
        workflow = again(workflow)
    workflow = work(workflow)  # due at once: nobody waits for the question
    assert world.log.count("undo charge") == 3
    assert workflow.waiting_for == "The reversal of “Charge” failed 3 times. Has someone reversed it?"
    task = ManualTask.objects.get()
    assert (task.task_type, due_in(task)) == (undo_doubts.UNDO_TASK_TYPE, "1 h")
    assert dict(task.facts)["The last error"] == "no_refunds: No."
    return workflow, task


def test_after_three_failures_the_earlier_ones_wait_for_a_person_who_has_undone_it_by_hand(world: World) -> None:
    workflow, task = exhausted(world)
    assert Workflow.objects.with_state().get(pk=workflow.pk).state == State.COMPENSATING
    assert again(workflow).waiting_for
    for answer, reason, why in NOT_ENOUGH:
        with pytest.raises(NotAllowed, match=why):
            operations.approve(task.pk, user=ada(), reason=reason, answer=answer)
    task.refresh_from_db()
    assert (task.state, Signal.objects.count(), states()["charge"]) == ("open", 0, "done")
    assert "undo reserve" not in world.log
    charged_at = Effect.objects.get(step="charge", undo=False).settled_at
    operations.approve(task.pk, user=ada(), reason="By phone.", answer=BY_HAND)
    assert to_rest(workflow).status == "FAILED"
    assert world.log[-1] == "undo reserve"
    charge = Effect.objects.get(step="charge", undo=False)
    assert (charge.state, charge.settled_by, charge.settled_at) == ("undone", "ada", charged_at)
    refund = Effect.objects.get(step="charge", undo=True)
    assert (refund.state, refund.settled_by, refund.result) == ("done", "ada", {"reference": "re-9"})
    assert (refund.error_code, refund.idempotency_key) == ("", charge.idempotency_key + ":undo")


def test_what_was_undone_by_hand_is_on_the_ledger_also_where_its_undo_was_never_called(world: World) -> None:
    define([world.step("charge"), fail])
    workflow = work(submit())
    define([world.step("charge", undo=None), fail])  # a release that lacks it
    work(workflow)
    operations.approve(ManualTask.objects.get().pk, user=ada(), reason="By phone.", answer=BY_HAND)
    assert to_rest(workflow).status == "FAILED"
    assert states() == {"charge": "undone", "undo charge": "done"}
    assert Effect.objects.get(undo=True).result == {"reference": "re-9"}


def test_what_a_person_lets_be_is_asked_again_when_a_retry_fails_too(world: World) -> None:
    workflow, task = exhausted(world)
    operations.approve(task.pk, user=ada(), reason="Too late.", answer={"kept": True})
    workflow = to_rest(workflow)
    assert (states()["charge"], states()["reserve"]) == ("kept", "undone")
    operations.retry(workflow.pk, user=ada())
    world.log.clear()
    world.errors["undo charge"] = [StepError("No.")] * 3
    for _ in range(5):
        workflow = again(workflow)
    assert world.log[0] == "reserve"
    assert "charge" not in world.log, "it stayed done"
    assert (workflow.compensating, workflow.waiting_for) == (True, task.question)
    assert ManualTask.objects.latest("id").pk != task.pk


def test_a_person_has_it_tried_again_as_often_as_before(world: World) -> None:
    workflow, task = exhausted(world)
    world.errors["undo charge"] = [StepError("No.")] * 3
    operations.reject(task.pk, user=ada(), reason="The service is up again.")
    for _ in range(4):
        workflow = again(workflow)
    assert world.log.count("undo charge") == 6
    second = ManualTask.objects.latest("id")
    assert (second.state, second.pk != task.pk) == ("open", True)
    operations.approve(second.pk, user=ada(), reason="By phone.", answer=BY_HAND)
    assert to_rest(workflow).status == "FAILED"


@pytest.mark.parametrize("lost", ["its undo", "its place in the list"])
def test_an_undo_that_this_release_lacks_is_a_question(world: World, lost: str) -> None:
    define([world.step("reserve"), world.step("charge"), fail])
    workflow = work(submit())
    define([world.step("reserve"), *([world.step("charge", undo=None)] if lost == "its undo" else []), fail])
    workflow = work(workflow)
    assert workflow.waiting_for == "The reversal of “Charge” is not in this release. Has someone reversed it?"
    task = ManualTask.objects.get()
    define([world.step("reserve"), world.step("charge"), fail])  # the next release has it
    assert to_rest(workflow).status == "FAILED"
    assert world.log == ["reserve", "charge", "undo charge", "undo reserve"]
    task.refresh_from_db()
    assert task.state == "closed"


@pytest.mark.parametrize(("outcome", "times"), [("crashed", 3), ("overdue", 3), ("killed", 10)])
def test_three_crashes_in_a_row_or_ten_deaths_are_a_question(world: World, outcome: str, times: int) -> None:
    define([world.step("reserve"), world.step("charge"), fail])
    workflow = work(submit())
    ended = {"outcome": "interrupted", "died_how": "overdue"} if outcome == "overdue" else {"outcome": outcome}
    for number in range(2, 2 + times):
        Attempt.objects.create(
            workflow=workflow, number=number, closed_at=workflow.created_at, died_in="undo charge", **ended
        )
    workflow = work(workflow)
    assert "undo charge" not in world.log
    task = ManualTask.objects.get()
    assert f"died {times} times in a row, last in undo charge" in dict(task.facts)["The last error"]
    operations.reject(task.pk, user=ada(), reason="Mended.")
    assert to_rest(workflow).status == "FAILED"
    assert world.log == ["reserve", "charge", "undo charge", "undo reserve"]


def test_a_killed_worker_condemns_nothing(world: World) -> None:
    define([world.step("charge"), fail])
    workflow = work(submit())
    for number in range(2, 5):
        Attempt.objects.create(workflow=workflow, number=number, closed_at=workflow.created_at, outcome="killed")
    workflow = work(workflow)
    assert kinds(workflow)[-1] == "put_back"
    Attempt.objects.filter(number=5).update(outcome="lost")
    assert to_rest(workflow).status == "FAILED"
    assert not ManualTask.objects.exists()


def test_workers_that_died_before_it_was_cancelled_say_nothing_of_its_undos(world: World) -> None:
    define([world.step("charge"), flaky])
    workflow = work(submit())
    for number in range(2, 5):
        Attempt.objects.create(workflow=workflow, number=number, closed_at=workflow.created_at, outcome="crashed")
        Event.objects.create(workflow=workflow, kind="crashed", attempt=number)
    operations.cancel(workflow.pk, user=ada(), reason="Asked for by phone.")
    assert to_rest(workflow).status == "FAILED"
    assert world.log == ["charge", "undo charge"]


def test_a_worker_that_was_ended_in_an_undo_says_nothing_of_a_retry(world: World) -> None:
    define([world.step("charge"), fail])
    workflow = work(submit())
    overdue = {"outcome": "interrupted", "died_how": "overdue", "died_in": "undo charge"}
    Attempt.objects.create(workflow=workflow, number=2, closed_at=workflow.created_at, **overdue)
    workflow = to_rest(workflow)
    operations.retry(workflow.pk, user=ada())
    assert again(workflow).last_error_code == "refused"


def test_other_questions_are_closed_when_it_fails(world: World) -> None:
    from workflows.waits import require_approval

    def ask(*, workflow: Workflow, context: Any) -> None:
        require_approval(workflow, "review", question="May it?", timeout=timedelta(hours=1))

    define([world.step("charge"), ask])
    workflow = work(submit())
    operations.cancel(workflow.pk, user=ada(), reason="Asked for by phone.")
    assert ManualTask.objects.get().state == "closed"
    workflow = to_rest(workflow)
    operations.retry(workflow.pk, user=ada())
    workflow = again(workflow)
    assert ManualTask.objects.latest("id").state == "open"
    assert workflow.waiting_for == "May it?"

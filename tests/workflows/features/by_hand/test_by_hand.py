"""DONE BY HAND: a person made the call at which a workflow failed; our key is never sent for it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, transaction
from django.utils import timezone

from tests import engine
from tests.engine import again, define, submit, work
from tests.workflows.features.by_hand.till import RIGHTS, Till, asked, lead, say, states
from tests.workflows.operations.bank import Bank, not_applicable, ship
from tests.workflows.operations.two import known
from tests.workflows.undoing import BY_HAND, fail, to_rest
from workflows import before_undo, operations
from workflows.definition import Brake, Retry, Step, definitions
from workflows.engine import undo_question
from workflows.errors import NotAllowed, StepError
from workflows.features.by_hand import operations as by_hand
from workflows.features.retention import content
from workflows.features.retention.unsettled import why_they_stay
from workflows.models import Attempt, Confirmation, Effect, Event, ManualTask, Workflow
from workflows.operations.payments import held
from workflows.operations.retrying import start_again
from workflows.operations.two_people import ASKED, GONE, has_confirmed_retry, is_needed_to_retry
from workflows.telling import patient
from workflows.telling.money import money_line
from workflows.waits import require_approval

pytestmark = engine.ENGINE


@pytest.fixture
def till() -> Till:
    return Till()


@pytest.fixture
def carla(db: None) -> User:
    return lead("carla")


@pytest.fixture
def dan(db: None) -> User:
    return lead("dan")


def refused(why: str, act: Callable[[], Any]) -> None:
    before = list(Effect.objects.order_by("id").values()), list(Workflow.objects.values())
    with pytest.raises(NotAllowed, match=why):
        act()
    assert before == (list(Effect.objects.order_by("id").values()), list(Workflow.objects.values()))


def money(row: Workflow) -> str:
    effects = list(Effect.objects.filter(workflow=row).order_by("id"))
    return money_line(row, definitions()["test"], row.payload, effects)


# --- Saying it ----------------------------------------------------------------------------------------


def test_a_call_made_by_hand_is_on_record_and_never_sent(till: Till, carla: User) -> None:
    row = till.declined(ship)
    assert say(row, carla) == ""
    assert states() == {"pay 1": "not_done", "pay 2": "done pos-77"}
    row = to_rest(row)
    assert (row.status, row.context["number"], row.context["text"]) == ("COMPLETE", 9, "p-1")
    assert till.charged == [f"{row.key}:pay"], "the first call, and no other"
    event = Event.objects.get(kind="by_hand")
    assert (event.actor, event.step, event.detail["reason"]) == ("carla", "pay", "Paid at the desk.")
    assert (event.detail["reference"], event.detail["fields"]) == ("pos-77", {"number": "•••"})
    assert Effect.objects.get(generation=2).settled_by == "carla"
    assert money(row).startswith("$145.00 charged by hand, as carla said at ")
    assert money(row).endswith("; the sum is that of the submission.")
    row = Workflow.objects.with_state().get(pk=row.pk)
    assert "Your payment of $145.00 has been on our books since" in patient.message_of(row)
    assert [(each.number, each.is_reversible) for each in held(row.pk)] == [(1, False)]


def test_a_step_without_a_charge_takes_one_person_where_others_take_two(till: Till, carla: User) -> None:
    known(Step(ship, once=True, returns=("text",), name="pay"), two_people=True)
    define([Step(fail, once=True, settle=0, returns=("text",))])
    row = work(submit())
    assert say(row, carla, result={"text": "p-9"}) == ""
    assert to_rest(row).context["text"] == "p-9"


def test_where_it_charges_another_user_confirms_it(till: Till, carla: User, dan: User) -> None:
    row = till.declined(two_people=True)
    assert say(row, carla) == by_hand.ASKED
    seen = asked()
    assert (states(), row.status) == ({"pay 1": "not_done"}, "FAILED")
    assert set(why_they_stay([row.pk]).values()) == {"by_hand"}
    refused("carla has said that its call was made by hand", lambda: say(row, dan))
    refused("carla has said that its call was made by hand", lambda: operations.retry(row.pk, user=dan))
    refused(GONE, lambda: operations.do_not_confirm_retry(row.pk, user=dan, seen=seen, reason="No."))
    refused("another user confirms it", lambda: by_hand.confirm(row.pk, user=carla, seen=seen, reason="Mine."))
    assert by_hand.confirm(row.pk, user=dan, seen=seen, reason="It is in the till.") == ""
    assert to_rest(row).status == "COMPLETE"
    assert (states(), len(till.charged)) == ({"pay 1": "not_done", "pay 2": "done pos-77"}, 1)
    assert money(row).startswith("$145.00 charged by hand, as carla said and dan confirmed at ")
    told = Event.objects.get(kind="by_hand")
    assert (told.actor, told.detail["first"], told.detail["note"]) == ("dan", "carla", "It is in the till.")
    refused("Only", lambda: by_hand.confirm(row.pk, user=dan, seen=seen, reason="Again."))


def test_what_this_release_would_take_otherwise_is_not_confirmed(till: Till, carla: User, dan: User) -> None:
    row = till.declined(two_people=True)
    say(row, carla)
    known(till.step(returns=("text",)))
    refused("does not return number", lambda: by_hand.confirm(row.pk, user=dan, seen=asked(), reason="Seen."))
    known(till.step())
    other = {"step": "pay", "state": "not_done", "generation": 2, "attempt": 1, "idempotency_key": "k"}
    Effect.objects.create(workflow=row, **other)
    refused(GONE, lambda: by_hand.confirm(row.pk, user=dan, seen=asked(), reason="Seen."))


def test_who_may_not_say_it_may_not_confirm_it(till: Till, carla: User) -> None:
    row = till.declined(two_people=True)
    say(row, carla)
    eve = lead("eve", *(set(RIGHTS) - {"cancel_paid_workflow"}))
    refused("may not say this yourself", lambda: by_hand.confirm(row.pk, user=eve, seen=asked(), reason="Seen."))
    with pytest.raises(PermissionDenied):
        by_hand.confirm(row.pk, user=lead("sam", "retry_workflow"), seen=asked(), reason="Seen.")


def test_what_is_not_confirmed_leaves_the_workflow_failed(till: Till, carla: User, dan: User) -> None:
    row = till.declined(two_people=True)
    say(row, carla)
    by_hand.do_not_confirm(row.pk, user=dan, seen=asked(), reason="The till has none.")
    assert Event.objects.latest("id").detail["said"] == "by_hand"
    till.declines = False
    operations.retry(row.pk, user=dan)
    assert to_rest(row).status == "COMPLETE"
    assert states() == {"pay 1": "done"}


def test_nothing_else_starts_a_workflow_whose_call_somebody_says_was_made(till: Till, carla: User) -> None:
    row = till.declined(two_people=True)
    say(row, carla)
    refused("carla has said that its call was made by hand", lambda: start_again(row))


def test_an_answer_is_not_retracted_meanwhile(till: Till, carla: User) -> None:
    def undo(*, workflow: Workflow, context: Any, effect: Any) -> None:
        raise StepError("No.", code="no")

    known(Step(ship, once=True, undo=undo, returns=("text",)), till.step())
    row = work(submit())
    while not (task := ManualTask.objects.first()):
        row = again(row)
    operations.approve(task.pk, user=carla, reason="Sent back.", answer=BY_HAND)
    row = to_rest(row)
    say(row, carla)
    refused(
        "carla has said that its call was made by hand", lambda: operations.retract(task.pk, user=carla, reason="No.")
    )


def test_a_confirmed_call_by_hand_confirms_no_retry(till: Till, carla: User, dan: User) -> None:
    row = till.declined(two_people=True)
    say(row, carla)
    Confirmation.objects.update(state="confirmed", decided_by=dan)
    assert not has_confirmed_retry(row.pk)


# --- Whether it can be said ---------------------------------------------------------------------------


def ask_first(*, workflow: Workflow, context: Any) -> None:
    require_approval(workflow, "review", question="Is it right?", timeout=timedelta(days=1))


def test_a_call_in_doubt_is_found_out_first(carla: User) -> None:
    bank = Bank()
    define([bank.step()], retry=Retry(max_attempts=1))
    row = work(submit())
    assert (row.status, states()) == ("FAILED", {"pay 1": "unknown"})
    refused("It is unclear whether “Pay” happened: retry it", lambda: say(row, carla))
    Effect.objects.update(state="kept")
    refused("It is unclear", lambda: say(row, carla))


def test_what_is_done_is_not_said_to_be_done(carla: User) -> None:
    bank = Bank()
    bank.charged = ["another"]
    define([bank.step(), Step(fail, once=True, settle=0, returns=())])
    row = work(submit())
    Workflow.objects.update(current_step="pay")
    refused("“Pay” is on record as done", lambda: say(row, carla))


def test_only_a_call_can_be_made_by_hand(till: Till, carla: User) -> None:
    define([ask_first])
    row = work(submit())
    refused("Only of a failed workflow|Only the call", lambda: say(row, carla))
    operations.reject(ManualTask.objects.get().pk, user=User.objects.create_superuser("boss"), reason="No.")
    row = again(row)
    assert row.status == "FAILED"
    refused("which makes no call that is on record", lambda: say(row, carla))


def test_a_check_makes_no_call(carla: User) -> None:
    define([fail])
    row = work(submit())
    refused("“Fail”, which makes no call that is on record", lambda: say(row, carla))


def test_nobody_can_say_what_is_not_declared(till: Till, carla: User) -> None:
    row = till.declined(returns=None)
    refused("does not declare it", lambda: say(row, carla))


def test_a_call_that_was_not_tried_is_retried(till: Till, carla: User) -> None:
    define([Step(not_applicable, name="pay", once=True, settle=0, returns=("number",)), fail])
    row = work(submit())
    Workflow.objects.update(current_step="pay")
    refused("The call of “Pay” was not tried", lambda: say(row, carla))


def test_a_cancelled_workflow_and_one_that_goes_on(till: Till, carla: User) -> None:
    row = till.declined()
    Workflow.objects.update(cancelled_at=timezone.now())
    refused("has failed by itself", lambda: say(row, carla))
    Workflow.objects.update(cancelled_at=None)
    Workflow.objects.update(workflow_type="another")
    refused("does not know the type", lambda: say(row, carla))
    Workflow.objects.update(workflow_type="test")
    seen = operations.ended_at(row)
    operations.retry(row.pk, user=carla)
    again(row)
    refused(
        "retried since you looked",
        lambda: by_hand.say(row.pk, user=carla, reason="Paid.", reference="p", result={"number": 1}, seen=seen),
    )


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"reference": "\u200b "}, "has a reference"),
        ({"reference": "p" * 201}, "at most 200"),
        ({"result": {}}, "returned these too: number"),
        ({"result": {"number": "nine"}}, "No step of test could have returned this|not an answer"),
        ({"result": {"number": 1, "text": "x"}}, "does not return text"),
    ],
    ids=str,
)
def test_what_is_said_has_a_reference_and_all_that_the_step_returns(
    till: Till, carla: User, said: dict[str, Any], why: str
) -> None:
    row = till.declined()
    refused(why, lambda: say(row, carla, **said))


def test_who_may_say_it(till: Till, carla: User) -> None:
    row = till.declined()
    with pytest.raises(PermissionDenied):
        say(row, lead("sam", "retry_workflow"))
    refused("ask somebody who may retry it", lambda: say(row, lead("olga", "resolve_manualtask")))


def test_the_database_calls_nothing_that_was_made_by_hand(till: Till, carla: User) -> None:
    row = till.declined()
    say(row, carla)
    for wrong in ({"state": "intent"}, {"state": "unknown"}, {"state": "not_done"}, {"undo": True}):
        with pytest.raises(DatabaseError, match="effect_by_hand_is_not_called"), transaction.atomic():
            Effect.objects.filter(generation=2).update(**wrong)


# --- Its reversal -------------------------------------------------------------------------------------


def undoing(till: Till, carla: User, **policy: Any) -> Workflow:
    """A workflow that fails after its charge was made by hand."""
    row = till.declined(fail, undo=till.refund, **policy)
    say(row, carla)
    return again(row)


def test_a_person_is_asked_before_what_was_made_by_hand_is_reversed(till: Till, carla: User) -> None:
    row = again(undoing(till, carla, undo_lookup=lambda **_: {}))
    task = ManualTask.objects.get()
    assert task.question == row.waiting_for == "“Pay” was done by hand. Has someone reversed it?"
    assert ["Done by hand, under the reference", "pos-77"] in task.facts
    assert patient.REFUND_ASKED in patient.message_of(Workflow.objects.with_state().get(pk=row.pk))
    operations.reject(task.pk, user=carla, reason="Look again.")
    row = again(row)
    task = ManualTask.objects.get(state="open")
    operations.approve(task.pk, user=carla, reason="Paid out.", answer=BY_HAND)
    row = to_rest(row)
    assert (row.status, till.refunded) == ("FAILED", [])
    assert states()["pay 2"] == "undone pos-77"
    assert "refunded by hand, re-9, as carla said" in money(row)


def test_it_is_reversed_by_itself_where_the_lookup_finds_it(till: Till, carla: User) -> None:
    till.found = {"number": 9}
    row = to_rest(undoing(till, carla, lookup=till.look))
    assert (row.status, till.refunded) == ("FAILED", [f"{row.key}:pay:2:undo"])
    assert not ManualTask.objects.exists()


@pytest.mark.parametrize("found", [None, {}, {"number": 8}], ids=str)
def test_a_lookup_that_finds_something_else_lets_nothing_be_reversed(
    till: Till, carla: User, found: dict[str, Any] | None
) -> None:
    till.found = found
    row = again(undoing(till, carla, lookup=till.look))
    assert (row.waiting_for, till.refunded) == ("“Pay” was done by hand. Has someone reversed it?", [])
    till.found = {"number": 9}
    operations.reject(ManualTask.objects.get().pk, user=carla, reason="It is booked now: look again.")
    assert to_rest(row).status == "FAILED"
    assert len(till.refunded) == 1


def test_a_step_that_returns_nothing_is_found_by_nobody(till: Till, carla: User) -> None:
    till.found = {}
    row = till.declined(fail, undo=till.refund, lookup=till.look, returns=())
    say(row, carla, result={})
    assert (again(again(row)).waiting_for, till.refunded) == ("“Pay” was done by hand. Has someone reversed it?", [])


def test_an_answer_counts_while_the_lookup_fails(till: Till, carla: User) -> None:
    row = again(undoing(till, carla, lookup=till.look))
    till.declines_looks = True
    operations.approve(ManualTask.objects.get().pk, user=carla, reason="Paid out.", answer=BY_HAND)
    row = again(row)
    assert (row.status, states()["pay 2"]) == ("FAILED", "undone pos-77")


def test_after_it_was_reversed_a_retry_charges_again_under_a_new_key(till: Till, carla: User) -> None:
    row = again(undoing(till, carla))
    operations.approve(ManualTask.objects.get().pk, user=carla, reason="Paid out.", answer=BY_HAND)
    row = to_rest(row)
    assert by_hand.why_no_call(row).endswith("which makes no call that is on record: a retry runs it again.")
    operations.retry(row.pk, user=carla)
    again(row)
    assert till.charged == [f"{row.key}:pay", f"{row.key}:pay:3"]


# --- Retracting it ------------------------------------------------------------------------------------


def retract(row: Workflow, user: User) -> str:
    seen = by_hand.said_by_hand(row)
    return by_hand.retract(row.pk, user=user, reason="Another patient.", seen=seen)


@pytest.mark.parametrize("runs", [False, True])
def test_what_was_not_made_by_hand_after_all_fails_the_workflow_again(till: Till, carla: User, runs: bool) -> None:
    row = till.declined(ask_first)
    say(row, carla)
    if runs:
        assert again(row).waiting_for == "Is it right?"
    assert retract(row, carla) == "It is retracted; the workflow has failed again."
    row.refresh_from_db()
    assert (row.status, row.current_step, row.last_error_code) == ("FAILED", "pay", "declined")
    assert states() == {"pay 1": "not_done", "pay 2": "not_done"}
    assert not ManualTask.objects.filter(state="open").exists()
    assert Event.objects.get(kind="taken_back").detail["answered_by"] == "carla"
    refused("does not stand as made by hand", lambda: retract(row, carla))
    till.declines = False
    operations.retry(row.pk, user=carla)
    again(row)
    assert till.charged == [f"{row.key}:pay", f"{row.key}:pay:2"]


def test_what_a_person_left_as_it_is_is_not_reversed_unasked_when_the_next_call_is_retracted(
    till: Till, carla: User
) -> None:
    """Who decided that the charge stays is asked again, as when the workflow had failed first."""
    till.declines = False
    ship_nowhere = Step(fail, once=True, settle=0, returns=("text",))
    asks = before_undo.ask("billing")
    known(till.step(undo=till.refund), ship_nowhere, two_people=False, brake=Brake(failures=0), before_undo=asks)
    row = work(work(submit({"cents": 14500, "currency": "USD"})))
    operations.reject(ManualTask.objects.get().pk, user=carla, reason="She comes back.")
    row = work(row)
    assert (row.status, states()) == ("FAILED", {"pay 1": "kept", "fail 1": "not_done"})
    say(row, carla, result={"text": "p-9"})
    assert (
        retract(row, carla) == "It is retracted; the workflow fails again, and a person is asked before it is reversed."
    )
    row = work(row)
    assert (row.compensating, row.waiting_for, till.refunded) == (True, undo_question.ASKED, [])


def test_what_two_people_said_was_charged_no_single_one_lets_charge_again(till: Till, carla: User, dan: User) -> None:
    """One who retracts it for another patient, and retries, would charge the card of somebody who has paid."""
    row = till.declined(ask_first, two_people=True)
    say(row, carla)
    by_hand.confirm(row.pk, user=dan, seen=asked(), reason="It is in the till.")
    assert retract(row, carla) == "It is retracted; the workflow has failed again."
    refused("ask a support lead", lambda: operations.retry(row.pk, user=lead("eve", "retry_workflow")))
    till.declines = False
    assert operations.retry(row.pk, user=carla) == ASKED
    operations.confirm_retry(row.pk, user=dan, seen=asked(), reason="He did not pay.")
    row = again(row)
    assert (row.waiting_for, till.charged) == ("Is it right?", [f"{row.key}:pay", f"{row.key}:pay:2"])
    assert not is_needed_to_retry(row.pk), "it is made again"


def test_what_a_later_call_builds_on_stands(till: Till, carla: User) -> None:
    row = till.declined(Step(ship, once=True, returns=("text",)), ask_first)
    say(row, carla)
    again(row)
    refused("“Ship” was started since, and builds on it", lambda: retract(row, carla))
    operations.approve(ManualTask.objects.get().pk, user=User.objects.create_superuser("boss"))
    assert to_rest(row).status == "COMPLETE"
    refused("is complete", lambda: retract(row, carla))


def test_what_is_being_reversed_goes_on_without_it(till: Till, carla: User) -> None:
    row = again(undoing(till, carla))
    assert retract(row, carla) == "It is retracted; the rest is reversed without it."
    row = work(row)
    assert (row.status, till.refunded, states()["pay 2"]) == ("FAILED", [], "not_done")
    assert not ManualTask.objects.filter(state="open").exists()


def test_an_answered_reversal_is_retracted_first(till: Till, carla: User) -> None:
    row = again(undoing(till, carla))
    operations.approve(ManualTask.objects.get().pk, user=carla, reason="Paid out.", answer=BY_HAND)
    refused("that answer can be retracted first", lambda: retract(row, carla))


def test_what_a_worker_has_in_hand_or_has_started_stands(till: Till, carla: User) -> None:
    row = again(undoing(till, carla))
    Attempt.objects.filter(workflow=row, number=3).update(closed_at=None, outcome="")
    refused("A worker was at it a moment ago", lambda: retract(row, carla))
    Attempt.objects.filter(workflow=row, number=3).delete()
    submit(parent=row, child_key="x", parent_wait="x")
    refused("Other workflows were started by it since", lambda: retract(row, carla))


def test_a_workflow_that_failed_meanwhile_stays_failed(till: Till, carla: User) -> None:
    row = till.declined(Step(fail, once=True, returns=()))
    say(row, carla)
    row = again(row)
    assert row.status == "FAILED"
    assert retract(row, carla) == "It is retracted; the workflow stays failed."
    assert (states()["pay 2"], "pay 3" in states()) == ("not_done", False)
    assert states()["fail 2"] == "not_done", "a new key: it is called with another charge"


# --- What is deleted ----------------------------------------------------------------------------------


def test_of_what_was_deleted_the_charge_stays(till: Till, carla: User, dan: User) -> None:
    row = till.declined(two_people=True)
    say(row, carla)
    by_hand.confirm(row.pk, user=dan, seen=asked(), reason="Seen.")
    row = to_rest(row)
    Workflow.objects.filter(pk=row.pk).update(completed_at=timezone.now() - timedelta(days=100))
    with transaction.atomic():
        Workflow.objects.select_for_update().get(pk=row.pk)
        content.empty([row.pk])
    effect = Effect.objects.get(generation=2)
    assert (effect.by_hand, effect.result) == ("(deleted)", {"number": 9})
    assert Confirmation.objects.get().answer is None


def test_what_waits_to_be_confirmed_stays_as_it_was_said(till: Till, carla: User) -> None:
    say(till.declined(two_people=True), carla)
    with pytest.raises(DatabaseError), transaction.atomic():
        Confirmation.objects.update(answer=None)

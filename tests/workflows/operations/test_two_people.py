"""TWO PEOPLE: what lets a charge be made again is said by one user and confirmed by another."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.utils import timezone

from tests import engine
from tests.engine import again, another_connection, define, submit, work
from tests.workflows import rows
from tests.workflows.operations import two
from tests.workflows.operations.bank import Bank, ship
from tests.workflows.operations.two import asked, confirm, in_doubt, lead, no
from tests.workflows.undoing import NEVER, flaky, to_rest
from workflows import operations, times
from workflows.checks_of_people import check_two_people
from workflows.definition import Step
from workflows.errors import NotAllowed, StepError, UnknownOutcome
from workflows.features.bulk import operations as bulk
from workflows.models import BulkOperation, Confirmation, Effect, Event, ManualTask, Workflow
from workflows.operations.retrying import retry_alone
from workflows.operations.two_people import ASKED, GONE, takes_two

pytestmark = engine.ENGINE


@pytest.fixture
def first(db: None) -> User:
    return lead("carla")


@pytest.fixture
def second(db: None) -> User:
    return lead("dan")


def state() -> str:
    return Confirmation.objects.latest("id").state


def refused(why: str, act: Callable[[], Any]) -> None:
    with pytest.raises(NotAllowed, match=why):
        act()


def test_that_it_did_not_happen_is_confirmed_by_a_second_person(bank: Bank, first: User, second: User) -> None:
    task = in_doubt(bank)
    operations.claim_task(task.pk, user=first)
    assert no(task, first) == ASKED
    workflow = again(task.workflow)
    task.refresh_from_db()
    assert (workflow.waiting_for, len(bank.charged)) == (task.question, 1)
    assert (task.state, task.assignee, task.decided_by, task.reason) == ("open", None, None, "")
    confirm(task, second)
    assert to_rest(workflow).status == "COMPLETE"
    assert len(bank.charged) == 2
    told = Event.objects.get(kind="rejected")
    assert (told.actor, told.detail["first"], told.detail["note"]) == ("dan", "carla", "Nor in mine.")
    assert told.detail["reason"] == "Not in the bank's list."
    assert (state(), Effect.objects.get(generation=1).settled_by) == ("confirmed", "dan")


def test_elsewhere_one_person_is_enough(bank: Bank, first: User) -> None:
    task = in_doubt(bank, two_people=False)
    assert no(task, first) == ""
    assert to_rest(task.workflow).status == "COMPLETE"


def test_that_it_happened_takes_one_person_and_ends_what_a_colleague_has_said(
    bank: Bank, first: User, second: User
) -> None:
    task = in_doubt(bank)
    no(task, first)
    seen = asked()
    assert operations.approve(task.pk, user=second, answer={"number": 9}) == ""
    assert state() == "stale"
    refused("dan approved it already|Nobody asks", lambda: confirm(task, lead("eve"), seen))
    assert to_rest(task.workflow).status == "COMPLETE"
    assert len(bank.charged) == 1


def test_a_second_person_who_disagrees_leaves_the_question_open(bank: Bank, first: User, second: User) -> None:
    task = in_doubt(bank)
    no(task, first)
    told = operations.do_not_confirm(task.pk, user=second, seen=asked(), reason="I see ch_9.")
    event = Event.objects.latest("id")
    assert (told, state(), event.kind) == ("It is not confirmed: nothing happens.", "refused", "confirmation_refused")
    assert (event.actor, event.detail["first"], event.detail["said"]) == ("dan", "carla", "did_not_happen")
    assert no(task, second) == ASKED, "the question is still open, and takes two again"
    assert operations.do_not_confirm(task.pk, user=second, seen=asked(), reason="Mine.") == "It is withdrawn."
    assert (state(), len(bank.charged)) == ("withdrawn", 1)


def test_who_is_no_second_person(bank: Bank, first: User, second: User) -> None:
    task = in_doubt(bank)
    no(task, first)
    seen = asked()
    refused("carla has said so since you looked", lambda: no(task, second))
    refused("another user confirms it", lambda: confirm(task, first))
    double = lead("carla_too")
    User.objects.filter(pk=double.pk).update(email=" Carla@example.com")
    refused("same e-mail address as carla", lambda: confirm(task, User.objects.get(pk=double.pk)))
    refused("less than a day old", lambda: confirm(task, lead("young", days=0)))
    first.user_permissions.clear()
    refused("carla may not say this any more", lambda: confirm(task, second))
    assert (asked(), len(bank.charged)) == (seen, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "confirmed", "decided_by": "first"},
        {"state": "confirmed", "decided_by": "first", "alone": True},
        {"state": "confirmed", "decided_by": "second", "alone": True},
        {"state": "confirmed", "decided_by": None},
        {"state": "confirmed", "decided_by": "young"},
        {"state": "confirmed", "decided_by": "double"},
        {"state": "confirmed", "decided_by": "closed"},
        {"state": "confirmed", "decided_by": "second", "decision": "approved"},
        {"asked_by": "second"},
        {"asked_at": datetime(2020, 1, 1, tzinfo=UTC)},
        {"reason": "Another."},
    ],
    ids=str,
)
def test_the_database_refuses_it_too(bank: Bank, first: User, second: User, wrong: dict[str, Any]) -> None:
    no(in_doubt(bank), first)
    people = {"first": first, "second": second, "young": lead("young", days=0), "double": lead("double")}
    people["closed"] = lead("closed", is_active=False)
    if wrong.get("decided_by") == "first":
        User.objects.filter(pk=first.pk).update(email="")  # no second address tells that they are one
    User.objects.filter(username="double").update(email="CARLA@example.com ")
    changed = {name: people.get(value, value) if isinstance(value, str) else value for name, value in wrong.items()}
    with pytest.raises(DatabaseError), transaction.atomic():
        Confirmation.objects.update(**changed)
    Confirmation.objects.update(state="confirmed", decided_by=second)
    with pytest.raises(DatabaseError), transaction.atomic():
        Confirmation.objects.update(state="asked")


def test_nothing_is_stored_as_decided_or_asked_earlier(bank: Bank, first: User, second: User) -> None:
    task = in_doubt(bank)
    row = {"workflow_id": task.workflow_id, "task": task, "decision": "rejected", "reason": "No.", "asked_by": first}
    with pytest.raises(DatabaseError), transaction.atomic():
        Confirmation.objects.create(**row, state="confirmed", decided_by=second)
    made = Confirmation.objects.create(**row, asked_at=timezone.now() - timedelta(days=1))
    made.refresh_from_db()
    assert made.asked_at > timezone.now() - timedelta(hours=1)


# --- Alone ---------------------------------------------------------------------------------------------


def test_a_lead_without_a_colleague_confirms_alone_after_eight_hours_and_another_reviews_it(
    bank: Bank, first: User
) -> None:
    task = in_doubt(bank)
    no(task, first)
    refused("you may confirm it alone from", lambda: confirm(task, first))
    rows.hours_pass(7)
    refused("you may confirm it alone from", lambda: confirm(task, first))
    rows.hours_pass(1)
    confirm(task, first)
    assert to_rest(task.workflow).status == "COMPLETE"
    made = Confirmation.objects.unreviewed().get()
    assert Event.objects.get(kind="rejected").detail["alone"] is True

    def review(user: User) -> None:
        operations.review_alone(task.workflow_id, user=user, seen=[made.pk], reason="I have asked the bank.")

    refused("another user reviews it", lambda: review(first))
    with pytest.raises(DatabaseError), transaction.atomic():
        Confirmation.objects.update(reviewed_by=first)
    second = lead("dan")
    review(second)
    assert (Confirmation.objects.unreviewed().count(), Event.objects.latest("id").kind) == (0, "reviewed")
    refused("It is reviewed already", lambda: review(second))


def test_whom_a_lead_has_to_wait_for(bank: Bank, first: User) -> None:
    task = in_doubt(bank)
    no(task, first)
    rows.hours_pass(9)
    lead("young", days=0)
    User.objects.filter(pk=lead("double").pk).update(email="CARLA@example.com")
    lead("closed", is_active=False)
    lead("reader", "view_workflow")
    second = lead("dan")
    refused("another user confirms it", lambda: confirm(task, first))
    User.objects.filter(pk=second.pk).update(is_active=False)
    confirm(task, first)
    assert state() == "confirmed"


def test_only_a_lead_confirms_alone(bank: Bank) -> None:
    worker = lead("oscar", "decide_manualtask")
    task = in_doubt(bank)
    no(task, worker)
    rows.hours_pass(9)
    refused("nobody else may confirm it: ask", lambda: confirm(task, worker))


def test_it_is_said_from_when_on_those_who_are_too_new_may_confirm(bank: Bank, first: User) -> None:
    worker, task = lead("oscar", "decide_manualtask"), in_doubt(bank)
    User.objects.filter(pk=first.pk).update(is_active=False)
    new = lead("eve", days=0)
    no(task, worker)
    at = times.minute(new.date_joined + timedelta(days=1))
    refused(rf"nobody else may confirm it before {re.escape(at)}: the accounts", lambda: confirm(task, worker))
    operations.do_not_confirm(task.pk, user=worker, seen=asked(), reason="Not me.")
    User.objects.filter(pk=first.pk).update(is_active=True)
    User.objects.exclude(pk=first.pk).update(date_joined=new.date_joined)
    no(task, first)
    refused(rf"^Nobody else may confirm it before {re.escape(at)}: .* alone from", lambda: confirm(task, first))


# --- What comes between ----------------------------------------------------------------------------------


def test_what_the_engine_finds_itself_is_not_confirmed_any_more(bank: Bank, first: User, second: User) -> None:
    task = in_doubt(bank)
    no(task, first)
    seen = asked()
    two.known(bank.step(lookup=lambda **_: {"number": 1}))  # the next release can ask the bank
    assert to_rest(again(task.workflow)).status == "COMPLETE"
    refused("went on without an answer|has finished", lambda: confirm(task, second, seen))
    assert len(bank.charged) == 1
    assert not Confirmation.objects.open().exists()


def test_two_first_answers_at_once_are_one(bank: Bank, first: User, second: User) -> None:
    task = in_doubt(bank)
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_manualtask WHERE id = %s FOR UPDATE", [task.pk])
        refused("Somebody is changing it", lambda: no(task, second))
    no(task, first)
    refused("carla has said so", lambda: no(task, second))
    seen = asked()
    confirm(task, second)
    refused("dan rejected it already", lambda: confirm(task, lead("eve"), seen))
    refused(GONE, lambda: operations.do_not_confirm(task.pk, user=first, seen=seen, reason="I was wrong."))


def test_a_cancelled_workflow_still_takes_two(bank: Bank, first: User, second: User) -> None:
    task = in_doubt(bank, undo=bank.refund)
    no(task, first)
    operations.cancel(task.workflow_id, user=first, reason="They have asked for it.")
    again(task.workflow)
    confirm(task, second)
    assert to_rest(task.workflow).status == "FAILED"
    assert (len(bank.charged), bank.refunded) == (1, [])


def test_a_question_that_is_asked_again_is_answered_anew(bank: Bank, first: User) -> None:
    task = in_doubt(bank, undo=bank.refund)
    no(task, first)
    operations.cancel(task.workflow_id, user=first, reason="They have asked for it.")
    engine.expire(task.workflow)
    again(task.workflow)
    following = ManualTask.objects.latest("id")
    assert (following.pk > task.pk, no(following, first)) == (True, ASKED)


def test_its_answer_can_be_retracted_by_one_and_takes_two_again(bank: Bank, first: User, second: User) -> None:
    task = in_doubt(bank)
    no(task, first)
    confirm(task, second)
    operations.retract(task.pk, user=first, reason="I looked at another patient.")
    again(task.workflow)
    assert no(ManualTask.objects.latest("id"), first) == ASKED


# --- The refund, and the retry ---------------------------------------------------------------------------


def refund_asked(bank: Bank, error: Exception) -> ManualTask:
    """The question about a refund that ended so three times."""

    def refund(**_: Any) -> dict[str, Any]:
        bank.refunded.append("tried")
        raise error

    bank.charged.append("of another patient")  # so that the charge is answered
    two.known(bank.step(undo=refund), two.declined)
    workflow = work(submit())
    for _ in range(5):
        workflow = again(workflow)
    return ManualTask.objects.get()


def test_a_refund_in_doubt_is_tried_again_by_two(bank: Bank, first: User, second: User) -> None:
    task = refund_asked(bank, UnknownOutcome("no answer"))
    assert no(task, first) == ASKED
    again(task.workflow)
    assert len(bank.refunded) == 3
    confirm(task, second)
    again(task.workflow)
    assert len(bank.refunded) == 4


def test_a_refund_that_was_refused_is_tried_again_by_one(bank: Bank, first: User) -> None:
    assert no(refund_asked(bank, StepError("No.", code="no_refunds")), first) == ""


def test_that_a_call_was_never_made_takes_two_and_that_it_stays_one(bank: Bank, first: User, second: User) -> None:
    def broken(**_: Any) -> None:
        raise StepError("No.", code="gone")

    two.known(bank.step(undo=bank.refund, lookup=broken, settle=0), two.declined)
    workflow = work(submit())
    for _ in range(5):
        workflow = again(workflow)
    task = ManualTask.objects.get()
    assert operations.approve(task.pk, user=first, reason="Not there.", answer=NEVER) == ASKED
    confirm(task, second)
    assert to_rest(workflow).status == "FAILED"
    assert Effect.objects.get().state == "not_done"


def refunded(bank: Bank) -> Workflow:
    bank.charged.append("of another patient")
    two.known(bank.step(undo=bank.refund), two.declined)
    workflow = to_rest(work(submit()))
    assert len(bank.refunded) == 1
    two.known(bank.step(undo=bank.refund))
    return workflow


def test_what_was_refunded_is_charged_again_by_two(bank: Bank, first: User, second: User) -> None:
    workflow = refunded(bank)
    assert operations.retry(workflow.pk, user=first, reason="They want it.") == ASKED
    workflow.refresh_from_db()
    assert workflow.status == "FAILED"
    refused("carla has said so", lambda: operations.retry(workflow.pk, user=second))
    refused(
        "another user confirms",
        lambda: operations.confirm_retry(workflow.pk, user=first, seen=asked(), reason="Nor I."),
    )
    support = lead("sam", "retry_workflow")
    refused(
        "ask a support lead", lambda: operations.confirm_retry(workflow.pk, user=support, seen=asked(), reason="Nor I.")
    )
    operations.confirm_retry(workflow.pk, user=second, seen=asked(), reason="Nor I.")
    assert to_rest(workflow).status == "COMPLETE"
    assert len(bank.charged) == 3
    told = Event.objects.get(kind="retried")
    assert (told.actor, told.detail["first"], told.detail["reason"]) == ("dan", "carla", "They want it.")


def test_a_retry_is_withdrawn_or_dropped(bank: Bank, first: User, second: User) -> None:
    workflow = refunded(bank)
    operations.retry(workflow.pk, user=first)
    assert operations.do_not_confirm_retry(workflow.pk, user=first, seen=asked(), reason="No.") == "It is withdrawn."
    operations.retry(workflow.pk, user=first)
    seen = asked()
    two.known(bank.step(undo=bank.refund), two_people=False)
    operations.retry(workflow.pk, user=second)
    assert state() == "stale"
    to_rest(workflow)
    refused(
        "Only a failed workflow", lambda: operations.confirm_retry(workflow.pk, user=second, seen=seen, reason="Nor I.")
    )


def test_what_was_asked_before_the_last_end_is_not_confirmed(bank: Bank, first: User, second: User) -> None:
    """A console of the release before retries it and drops nothing; then it fails again."""
    workflow = refunded(bank)
    operations.retry(workflow.pk, user=first)
    seen = asked()
    Workflow.objects.filter(pk=workflow.pk).update(completed_at=timezone.now() + timedelta(seconds=1))
    refused(GONE, lambda: operations.confirm_retry(workflow.pk, user=second, seen=seen, reason="Nor I."))
    Workflow.objects.filter(pk=workflow.pk).update(completed_at=timezone.now() - timedelta(seconds=1))
    Confirmation.objects.update(state="stale")
    assert operations.retry(workflow.pk, user=second) == ASKED
    Workflow.objects.filter(pk=workflow.pk).update(completed_at=timezone.now())
    assert operations.retry(workflow.pk, user=first) == ASKED, "asked anew, and the old one is dropped"


def test_a_retry_that_waits_is_dropped_when_the_reversal_is_taken_up_again(bank: Bank, first: User) -> None:
    def refuse(**_: Any) -> dict[str, Any]:
        raise StepError("No.", code="no")

    bank.charged.append("of another patient")
    two.known(Step(ship, name="ship", once=True, undo=refuse), bank.step(undo=bank.refund), two.declined)
    workflow = work(submit())
    for _ in range(5):
        workflow = again(workflow)
    task = ManualTask.objects.get()
    operations.approve(task.pk, user=first, reason="It stays.", answer={"kept": True})
    workflow = to_rest(workflow)
    assert operations.retry(workflow.pk, user=first) == ASKED
    operations.retract(task.pk, user=first, reason="It does not stay.")
    assert state() == "stale"


def test_what_was_refunded_after_its_parents_retry_was_confirmed_by_nobody(first: User, second: User) -> None:
    ended = {"completed_at": timezone.now(), "cancelled_at": timezone.now()}
    root = rows.refunded(**ended)
    child = rows.refunded(parent=root, parent_wait="w", child_key="a", **ended)

    def retry() -> None:
        retry_alone(child.pk, root=root.pk, user=first, reason="So.", seen=())

    refused("takes two people", retry)
    rows.to_confirm(first, root)
    refused("takes two people", retry)
    Confirmation.objects.update(state="refused", decided_by=second)
    refused("takes two people", retry)
    asked = rows.to_confirm(first, root)
    Confirmation.objects.filter(pk=asked.pk).update(state="confirmed", decided_by=second)
    Workflow.objects.filter(pk=root.pk).update(completed_at=timezone.now() + timedelta(hours=1))
    refused("takes two people", retry)
    Workflow.objects.filter(pk=root.pk).update(completed_at=asked.asked_at)
    retry()
    assert Workflow.objects.get(pk=child.pk).status == "PENDING"


@pytest.mark.parametrize("may", [True, False])
def test_many_are_charged_again_when_a_second_person_who_may_has_approved_it(
    bank: Bank, first: User, second: User, may: bool
) -> None:
    workflow = refunded(bank)
    refused("takes two people", lambda: operations.retry(workflow.pk, user=first, in_bulk=True))
    for each in (first, second):
        each.user_permissions.add(*two.permissions("start_bulkoperation"))
    second.user_permissions.remove(*([] if may else two.permissions("cancel_paid_workflow")))
    first, second = User.objects.get(pk=first.pk), User.objects.get(pk=second.pk)
    made = bulk.choose("retry", Workflow.objects.values("pk"), user=first, chosen_by="all")
    assert "another user approves" in bulk.start(made.pk, user=first, reason="The bank is back.")
    bulk.approve(made.pk, user=second)
    with transaction.atomic():
        bulk.do_slice(0)
    assert BulkOperation.objects.get().items.get().why.startswith("" if may else "You may not say this yourself")
    if not may:
        return
    assert to_rest(workflow).status == "COMPLETE"
    assert (state(), Confirmation.objects.get().decided_by) == ("confirmed", second)
    told = Event.objects.get(kind="retried")
    assert (told.actor, told.detail["first"]) == (second.username, first.username), "the history names both"
    assert not Event.objects.filter(kind="confirmation_asked").exists(), "that was asked of all, and before"


def test_a_step_that_is_gone_may_be_the_charge_renamed(bank: Bank, first: User, second: User) -> None:
    bank.charged.append("of another patient")
    two.known(bank.step(), flaky)
    workflow = work(submit())
    two.known(bank.step(name="charge"))
    workflow = again(workflow)
    engine.expire(workflow)
    work(workflow)
    task = ManualTask.objects.get(task_type="step_undeclared")
    assert operations.approve(task.pk, user=first, reason="It is right.") == ASKED
    confirm(task, second)
    assert to_rest(workflow).status == "COMPLETE"
    assert len(bank.charged) == 3, "as the question warns"


def test_check_warns_while_fewer_than_two_people_may(bank: Bank) -> None:
    two.known(bank.step())

    def warned() -> list[str]:
        return [each.msg for each in check_two_people(databases=["default"])]

    assert not list(check_two_people(databases=None))
    assert warned() == [
        "Two people have to answer an unclear call (test), and 0 may.",
        "Two people have to charge again what was refunded (test), and 0 may.",
    ]
    lead("carla")
    User.objects.filter(pk=lead("double", "resolve_manualtask", *two.RIGHTS).pk).update(email="CARLA@example.com")
    assert [each[-7:] for each in warned()] == [" 1 may."] * 2
    lead("dan", "resolve_manualtask")
    assert warned() == ["Two people have to charge again what was refunded (test), and 1 may."]
    eve = lead("eve", days=0)
    assert [each.partition(", and ")[2] for each in warned()] == ["1 may; 1 more from when their account is a day old."]
    User.objects.filter(pk=eve.pk).update(date_joined=User.objects.get(username="dan").date_joined)
    assert warned() == []


def test_what_a_release_does_not_know_may_be_a_charge() -> None:
    two.known(two.declined, two_people=False)
    assert (takes_two("gone"), takes_two("test")) == (True, False)


def test_only_who_charges_takes_two_people() -> None:
    with pytest.raises(ValueError, match="asks two people about a charge"):
        define([two.declined], two_people=True)

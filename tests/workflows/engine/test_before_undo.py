"""BEFORE UNDO: a person is asked whether what a failed workflow has done is reversed, retried or left as it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User

from tests import engine
from tests.engine import (
    again,
    at,
    define,
    do_maintenance,
    elsewhere,
    expire,
    kinds,
    make_due,
    outcomes,
    sent,
    submit,
    work,
)
from tests.workflows.undoing import World, ada, fail, states, to_rest
from workflows import failpoints, operations, testing
from workflows.before_undo import ask
from workflows.definition import Retry, WorkflowDefinition, WorkflowStep
from workflows.engine import undo_question
from workflows.errors import LetFail, NotAllowed, RetryableStepError, StepError, UnknownOutcome
from workflows.models import Attempt, Effect, Event, ManualTask, State, Wait, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.signals import store
from workflows.waits import WaitFailed, require_approval
from workflows.wording import CodeWords, Money, Wording

pytestmark = engine.ENGINE

WORDING = Wording(
    codes={
        "program_full": CodeWords("The program is full.", "The program is full at the moment."),
        "busy": CodeWords("The program is busy.", "It takes longer.", passing=True),
    }
)
FULL, BUSY = StepError("No.", code="program_full"), RetryableStepError("No.", code="busy", max_attempts=1)


def asked(world: World, error: BaseException = FULL, **options: Any) -> tuple[Workflow, ManualTask]:
    """A workflow that has failed after two calls, and the question before they are reversed."""
    Group.objects.get_or_create(name="billing")
    world.errors["enroll"] = [error]
    steps = [world.step("reserve"), world.step("charge"), world.step("enroll", undo=None)]
    define(steps, wording=WORDING, before_undo=ask("billing", **options), retry=Retry(base_delay=0))
    workflow = work(submit())
    assert (workflow.compensating, ManualTask.objects.count()) == (True, 0)
    assert is_undecided(workflow), "before it is asked"
    workflow = work(workflow)
    assert is_undecided(workflow)
    return workflow, ManualTask.objects.get()


def is_undecided(workflow: Workflow) -> bool:
    """What the patient and staff are told: nothing is reversed yet."""
    return undo_question.is_undecided(engine.DEFINITION, workflow)


def test_a_person_has_it_reversed_at_once(world: World) -> None:
    workflow, task = asked(world)
    assert Workflow.objects.with_state().get().state == State.COMPENSATING
    assert (task.task_type, task.team, task.state, world.log[-1]) == ("before_undo", "billing", "open", "enroll")
    assert dict(task.facts) == {
        "Why it failed": "“Enroll”: The program is full.",
        "To be reversed": "“Charge”, “Reserve”",
    }
    assert task.due_at
    assert abs(task.due_at - task.created_at - timedelta(hours=1)) < timedelta(seconds=1)
    assert task.expires_at - task.created_at < timedelta(hours=24, seconds=1)
    operations.approve(task.pk, user=ada())
    with sent("attempt_log") as statements:
        assert to_rest(workflow).status == "FAILED"
    assert sum("workflows_undo_question" in each for each in statements) == 1, "it looks once"
    assert world.log[-2:] == ["undo charge", "undo reserve"]
    assert ManualTask.objects.count() == 1


def test_what_a_person_leaves_as_it_is_keeps_its_results_and_is_not_called_again(world: World) -> None:
    workflow, task = asked(world)
    operations.reject(task.pk, user=ada(), reason="A place becomes free on Monday.")
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("FAILED", "program_full")
    assert states() == {"reserve": "kept", "charge": "kept", "enroll": "not_done"}
    charge = Effect.objects.get(step="charge")
    assert (charge.result, charge.settled_by) == ({"tags": ["reserve", "charge"]}, "ada")
    operations.retry(workflow.pk, user=ada())
    assert to_rest(workflow).status == "COMPLETE"
    assert world.log == ["reserve", "charge", "enroll", "enroll"]


def test_a_person_has_it_retried_with_all_calls_on_record(world: World) -> None:
    workflow, task = asked(world, BUSY)
    operations.approve(task.pk, user=ada(), reason="It is up again.", answer={"retry": True})
    workflow = work(workflow)
    assert (workflow.status, workflow.compensating, workflow.retry_count) == ("PENDING", False, 0)
    assert outcomes(workflow) == {}, "nothing has failed to be reversed"
    retried = Event.objects.filter(kind="retried").get()
    assert (retried.actor, retried.step, retried.detail) == ("ada", "enroll", {"reason": "It is up again."})
    assert to_rest(workflow).status == "COMPLETE"
    assert world.log == ["reserve", "charge", "enroll", "enroll"]


def test_what_nobody_answers_is_reversed_at_the_deadline(world: World) -> None:
    workflow, task = asked(world, timeout=timedelta(minutes=30))
    assert task.due_at
    assert max(task.due_at, task.expires_at) - task.created_at < timedelta(minutes=31)
    expire(workflow)
    assert to_rest(workflow).status == "FAILED"
    assert states()["charge"] == "undone"
    assert kinds(workflow)[-3:] == ["waiting", "expired", "compensated"]


@pytest.mark.parametrize("error", [FULL, BUSY])
def test_each_further_failure_is_another_question(world: World, error: BaseException) -> None:
    workflow, task = asked(world, error)
    if error is BUSY:
        operations.approve(task.pk, user=ada(), answer={"retry": True})
        work(workflow)
    else:
        operations.reject(task.pk, user=ada(), reason="Wait.")
        operations.retry(work(workflow).pk, user=ada())
    world.errors["enroll"] = [FULL]
    work(work(workflow))
    second = ManualTask.objects.latest("id")
    assert (second.state, second.pk != task.pk, states()["charge"]) == ("open", True, "done")


# --- Never asked ----------------------------------------------------------------------------------------


def _waits(outcome: str) -> WorkflowStep:
    """A step that ends by an approval, which is rejected, or expires; it raises another error for it."""

    def review(*, workflow: Workflow, context: Any) -> None:
        try:
            require_approval(workflow, "review", question="May it?", timeout=timedelta(hours=1))
        except WaitFailed:
            raise StepError("No.", code="program_full")  # noqa: B904 (as authors write it)

    review.__name__ = outcome
    return review


def _by(how: str, workflow: Workflow) -> None:
    match how:
        case "rejected":
            operations.reject(ManualTask.objects.get().pk, user=ada(), reason="No.")
        case "unanswered":
            expire(workflow)
        case "cancelled":
            operations.cancel(workflow.pk, user=ada(), reason="By phone.")
        case "expired":
            Workflow.objects.update(expires_at=workflow.created_at)


@pytest.mark.parametrize("how", ["rejected", "unanswered", "cancelled", "expired"])
def test_nobody_is_asked_after_a_no_a_cancellation_or_a_time_that_is_over(world: World, how: str) -> None:
    define([world.step("charge"), _waits(how)], wording=WORDING, before_undo=ask("billing"))
    workflow = work(submit())
    _by(how, workflow)
    if not (workflow := Workflow.objects.get()).compensating:
        workflow = again(workflow)
    assert not is_undecided(workflow)
    assert to_rest(workflow).status == "FAILED"
    assert (world.log, ManualTask.objects.exclude(task_type="approval").count()) == (["charge", "undo charge"], 0)


LET_FAIL = LetFail(by="ada", reason="No.", cause="enroll")


@pytest.mark.parametrize("error", [LET_FAIL, FULL])
def test_nobody_is_asked_when_people_let_it_fail_or_for_another_code(world: World, error: StepError) -> None:
    world.errors["enroll"] = [error]
    define(
        [world.step("charge"), world.step("enroll")],
        wording=WORDING,
        before_undo=ask("billing", when=("let_fail", "busy")),
    )
    assert to_rest(work(submit())).status == "FAILED"
    assert (world.log[-1], ManualTask.objects.count()) == ("undo charge", 0)


@pytest.mark.parametrize("found", [None, {"tags": ["found"]}])
def test_a_call_in_doubt_is_found_out_before_the_question(world: World, found: dict[str, Any] | None) -> None:
    """Where nothing has happened nobody is asked; what has is kept with its result."""
    define([world.step("charge", lookup=world.lookup, settle=0)], before_undo=ask("billing"))
    world.errors["charge"], world.found["charge"] = [ValueError("not JSON")], found
    workflow = work(work(submit()))
    if found:
        operations.reject(ManualTask.objects.get().pk, user=ada(), reason="Wait.")
        workflow = work(workflow)
    charge = Effect.objects.get()
    assert (workflow.status, ManualTask.objects.count()) == ("FAILED", int(found is not None))
    assert not is_undecided(workflow)
    assert (charge.state, charge.result) == ("kept" if found else "not_done", found)


def test_what_is_left_is_not_first_asked_about_as_a_reversal_that_this_release_lacks(world: World) -> None:
    workflow, task = asked(world)
    define([world.step("reserve"), world.step("enroll", undo=None)], before_undo=None)  # nor is the question lost
    operations.reject(task.pk, user=ada(), reason="Wait.")
    assert work(workflow).status == "FAILED"
    assert (states()["charge"], states()["reserve"]) == ("kept", "kept")


def test_a_release_that_does_not_ask_reverses(world: World) -> None:
    define([world.step("charge"), fail], before_undo=ask("billing"))
    workflow = work(submit())
    define([world.step("charge"), fail])
    assert work(workflow).status == "FAILED"
    assert (world.log, ManualTask.objects.count()) == (["charge", "undo charge"], 0)


# --- Crashes, races, deadlines --------------------------------------------------------------------------


FAILED, HELD = ("before_commit:failed", "after_commit:failed"), ("before_commit:held", "after_commit:held")
OVER = ("before_commit:compensated", "after_commit:compensated")


@pytest.mark.parametrize(
    ("answer", "boundary"),
    [
        *((True, boundary) for boundary in (*FAILED, *HELD, "after_call:undo charge", *OVER)),
        *((False, boundary) for boundary in OVER),
        *(({"retry": True}, boundary) for boundary in ("before_commit:startagain", "after_commit:startagain")),
    ],
)
def test_a_crash_asks_once_and_changes_nothing(world: World, answer: Any, boundary: str) -> None:
    Group.objects.create(name="billing")
    world.errors["enroll"] = [BUSY] * (2 if boundary == "before_commit:failed" else 1)
    tried = WorkflowDefinition(
        name="tried",
        steps=[world.step("charge", lookup=lambda **_: {"tags": []}), world.step("enroll", undo=None)],
        context_class=engine.Context,
        wording=WORDING,
        before_undo=ask("billing"),
    )
    run = testing.run(tried, {}, crash=boundary, decide=lambda task: answer)
    assert run.crashed
    assert ManualTask.objects.filter(task_type="before_undo").count() == 1
    ended = {"True": ("FAILED", "undone"), "False": ("FAILED", "kept")}.get(str(answer), ("COMPLETE", "done"))
    assert (run.status, run.effects["charge"]) == ended
    assert run.called("charge") == 1


def test_an_answer_that_comes_just_before_the_deadline_is_taken(world: World) -> None:
    """The worker has found the wait overdue; the task's row decides."""
    workflow, task = asked(world)
    Wait.objects.update(deadline=ClockTimestamp())
    make_due(workflow)
    answer = lambda: elsewhere(lambda: operations.reject(task.pk, user=ada(), reason="Wait."))  # noqa: E731
    with at("SET state = 'expired'", answer, alias="attempt_log"):
        workflow = work(workflow)
    assert (workflow.status, states()["charge"]) == ("FAILED", "kept")


def test_it_does_not_expire_while_it_is_asked_and_its_time_starts_again_with_a_retry(world: World) -> None:
    workflow, task = asked(world, BUSY)
    Workflow.objects.update(expires_at=workflow.created_at)
    workflow = again(workflow)
    assert (workflow.waiting_for, ManualTask.objects.count()) == (undo_question.ASKED, 1)
    operations.approve(task.pk, user=ada(), answer={"retry": True})
    assert to_rest(workflow).status == "COMPLETE"


def test_a_retry_is_only_for_what_a_retry_mends(world: World) -> None:
    workflow, task = asked(world, FULL)
    with pytest.raises(NotAllowed, match="A retry does not mend"):
        operations.approve(task.pk, user=ada(), answer={"retry": True})
    with pytest.raises(NotAllowed, match="Say why"):
        operations.reject(task.pk, user=ada(), reason=" ")
    with pytest.raises(NotAllowed, match="a person is asked whether it is to be reversed"):
        operations.cancel(workflow.pk, user=ada(), reason="By phone.")


def _request_to_cancel(workflow: Workflow) -> None:
    """As of a person who has seen the workflow under way, just as its worker committed that it has failed."""
    store.store(
        source="console",
        dedupe_key="cancel:1",
        name="cancel",
        workflow_id=workflow.pk,
        payload={"by": "ada", "reason": "By phone."},
    )


@pytest.mark.parametrize("when", ["before it fails", "before the question", "told to be too late"])
def test_a_request_to_cancel_that_comes_too_late_has_it_reversed_unasked(world: World, when: str) -> None:
    def fails(*, workflow: Workflow, context: Any) -> None:
        if when == "before it fails":
            elsewhere(lambda: _request_to_cancel(workflow))
        raise FULL

    define([world.step("charge"), fails], wording=WORDING, before_undo=ask("billing"))
    workflow = work(submit())
    assert workflow.compensating
    if when != "before it fails":
        _request_to_cancel(workflow)
    if when != "before the question":
        do_maintenance()
        assert kinds(workflow)[-1] == "cancel_too_late"
    assert to_rest(workflow).status == "FAILED"
    assert (world.log, ManualTask.objects.count()) == (["charge", "undo charge"], 0)


def test_a_retry_does_not_make_a_request_to_cancel_forgotten(world: World) -> None:
    workflow, task = asked(world, BUSY)
    operations.approve(task.pk, user=ada(), answer={"retry": True})
    _request_to_cancel(workflow)
    workflow = to_rest(workflow)
    assert (workflow.status, workflow.cancelled_at is None, world.log[-1]) == ("FAILED", False, "undo reserve")
    assert ManualTask.objects.count() == 1


@pytest.mark.parametrize("team", ["billing", "no group"])
def test_without_the_group_somebody_is_asked_all_the_same(world: World, team: str) -> None:
    define([world.step("charge"), fail], wording=WORDING, before_undo=ask(team))
    Group.objects.create(name="billing")
    work(work(submit()))
    assert ManualTask.objects.get().team == ("billing" if team == "billing" else "")


# --- Retracting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["reverse", "leave", "retry"])
def test_an_answer_that_nobody_has_read_is_retracted_and_asked_again(world: World, said: str) -> None:
    workflow, task = asked(world, BUSY)
    _answer(task, said)
    assert (
        operations.retract(task.pk, user=ada(), reason="Wrong.") == "It is retracted; the workflow asks again at once."
    )
    assert work(workflow).waiting_for == undo_question.ASKED
    assert (ManualTask.objects.filter(state="open").count(), world.log[-1]) == (1, "enroll")


def _answer(task: ManualTask, said: str) -> None:
    if said == "leave":
        operations.reject(task.pk, user=ada(), reason="Wait.")
    else:
        operations.approve(task.pk, user=ada(), answer={"retry": said == "retry"})


def test_what_was_left_by_mistake_is_asked_about_again(world: World) -> None:
    workflow, task = asked(world)
    _answer(task, "leave")
    work(workflow)
    # What was left by another answer stays so.
    for by, result in (("ada", None), ("bob", {})):
        kept = {"workflow": workflow, "state": "kept", "attempt": 1, "settled_by": by, "result": result}
        Effect.objects.create(step=f"other of {by}", idempotency_key=by, **kept)
    operations.retract(task.pk, user=ada(), reason="Wrong.")
    assert Effect.objects.filter(step__startswith="other", state="kept").count() == 2
    assert (states()["charge"], Workflow.objects.get().compensating) == ("done", True)
    assert work(workflow).waiting_for == undo_question.ASKED
    _answer(ManualTask.objects.latest("id"), "reverse")
    assert to_rest(workflow).status == "FAILED"
    assert world.log[-2:] == ["undo charge", "undo reserve"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("reverse", "The reversal of “Charge” was started since"),
        ("settled", "What was to be reversed is settled"),
        ("leave", "The workflow was retried since"),
        ("retry", "The workflow was retried since"),
    ],
)
def test_an_answer_stands_once_something_builds_on_it(world: World, said: str, why: str) -> None:
    workflow, task = asked(world, BUSY)
    _answer(task, "reverse" if said == "settled" else said)
    if said == "reverse":
        world.errors["undo charge"] = [StepError("No.")]
    if said == "settled":
        define([fail], before_undo=ask("billing"))  # a release that reverses nothing by itself
    workflow = work(workflow)
    while said == "settled" and workflow.status == "PENDING":
        operations.approve(ManualTask.objects.latest("id").pk, user=ada(), reason="Stays.", answer={"kept": True})
        workflow = work(workflow)
    if said == "leave":
        operations.retry(workflow.pk, user=ada())
    with pytest.raises(NotAllowed, match=why):
        operations.retract(task.pk, user=ada(), reason="Wrong.")


def test_an_undo_of_a_former_life_does_not_keep_the_answer_from_being_retracted(world: World) -> None:
    workflow, task = asked(world)
    operations.approve(task.pk, user=ada())
    operations.retry(to_rest(workflow).pk, user=ada())
    world.errors["enroll"] = [FULL]
    work(work(workflow))
    task = ManualTask.objects.latest("id")
    operations.approve(task.pk, user=ada())
    with failpoints.armed("before_intent:undo charge", crash), pytest.raises(testing.Crash):
        work(workflow)
    Attempt.objects.filter(closed_at=None).update(closed_at=ClockTimestamp(), outcome="lost")
    assert "asks again at once" in operations.retract(task.pk, user=ada(), reason="Wrong.")
    assert work(workflow).waiting_for == undo_question.ASKED


def crash() -> None:
    raise testing.Crash


def test_what_was_cancelled_is_not_asked_about_when_another_answer_is_retracted(world: World) -> None:
    define([world.step("charge", settle=0)], before_undo=ask("billing"))
    world.errors["charge"] = [UnknownOutcome()]
    workflow = work(submit())
    operations.cancel(workflow.pk, user=ada(), reason="By phone.")
    work(workflow)
    task = ManualTask.objects.get()
    operations.reject(task.pk, user=ada(), reason="It did not happen.")
    to_rest(workflow)
    operations.retract(task.pk, user=ada(), reason="It did.")
    work(workflow)
    operations.approve(ManualTask.objects.latest("id").pk, user=ada(), answer={"tags": []})
    assert to_rest(workflow).status == "FAILED"
    assert (world.log[-1], ManualTask.objects.filter(task_type="before_undo").count()) == ("undo charge", 0)


# --- After a person has settled one call by hand -----------------------------------------------------------


def settled_by_hand(world: World, answer: dict[str, Any]) -> ManualTask:
    """A person has settled the call that was in doubt, and is asked about the other one."""

    def lookup(**_: Any) -> None:
        if not world.found:
            raise StepError("422")
        return world.found["charge"]

    define(
        [world.step("reserve"), world.step("charge", lookup=lookup, settle=0)],
        wording=replace(WORDING, money=Money("charge", "cents", "currency", "tags", "undone")),
        before_undo=ask("billing"),
        retry=Retry(base_delay=0, max_attempts=1),
    )
    Group.objects.get_or_create(name="billing")
    world.errors["charge"] = [UnknownOutcome(code="busy")]
    workflow = work(submit())
    Effect.objects.filter(step="charge").update(undo_failures=3)
    work(workflow)
    operations.approve(ManualTask.objects.get().pk, user=ada(), reason="As agreed.", answer=answer)
    work(workflow)
    task: ManualTask = ManualTask.objects.get(task_type="before_undo")
    return task


def test_a_retry_finds_out_what_a_person_has_left_in_doubt(world: World) -> None:
    task = settled_by_hand(world, {"kept": True})
    world.found["charge"] = {"tags": ["found"]}
    operations.approve(task.pk, user=ada(), answer={"retry": True})
    assert to_rest(Workflow.objects.get()).status == "COMPLETE"
    assert (world.log, Effect.objects.get(step="charge").result) == (["reserve", "charge"], {"tags": ["found"]})


def test_a_retry_that_charges_again_takes_the_permission_to_charge_again(world: World) -> None:
    task = settled_by_hand(world, {"kept": False, "reference": "re-9"})
    bob = User.objects.create_user("bob")
    bob.user_permissions.add(Permission.objects.get(codename="decide_manualtask"))
    bob.groups.add(Group.objects.get(name="billing"))
    with pytest.raises(NotAllowed, match="a retry charges again: ask a support lead"):
        operations.approve(task.pk, user=bob, answer={"retry": True})
    operations.approve(task.pk, user=ada(), answer={"retry": True})
    assert to_rest(Workflow.objects.get()).status == "COMPLETE"
    assert world.log == ["reserve", "charge", "charge"]


@pytest.mark.parametrize("read", [False, True])
def test_an_answer_stands_where_this_release_would_not_ask_again_but_reverse(world: World, *, read: bool) -> None:
    workflow, task = asked(world)
    _answer(task, "leave")
    if read:
        work(workflow)
    define([world.step("reserve"), world.step("charge"), world.step("enroll", undo=None)])
    with pytest.raises(NotAllowed, match="This release does not ask before a reversal"):
        operations.retract(task.pk, user=ada(), reason="Wrong.")
    assert to_rest(workflow).status == "FAILED"
    assert (states()["charge"], world.log[-1]) == ("kept", "enroll")

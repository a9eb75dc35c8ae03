"""UNDO: what a workflow has done is undone when it fails for good, newest first, each once, and a person is asked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, InterfaceError, InternalError, OperationalError, connections

from tests import engine
from tests.engine import define, kinds, last_attempt, make_due, outcomes, submit, work, worker
from workflows import compensation, operations
from workflows.definition import Retry, Step
from workflows.effects import KnownEffect, key_for
from workflows.errors import ClaimLost, NotAllowed, RetryableStepError, StepError, UnknownOutcome
from workflows.models import Attempt, Effect, Event, ManualTask, Signal, State, Workflow

pytestmark = engine.ENGINE


BY_HAND = {"kept": False, "reference": "re-9"}


class World:
    """Services that remember what was done and undone, under which key, and fail as they are told."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.errors: dict[str, list[BaseException]] = {}
        self.found: dict[str, Mapping[str, Any] | None] = {}
        self.contexts: dict[str, Any] = {}

    def step(self, name: str, **policy: Any) -> Step:
        """A `once` step that logs itself, with an undo that does so too."""

        def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
            self._log(name, key_for(workflow, name))
            return {"tags": [*context.tags, name]}

        def undo(*, workflow: Workflow, context: Any, effect: KnownEffect) -> dict[str, Any]:
            self.contexts[name] = context
            assert key_for(workflow, name) == effect.undo_key == f"{effect.idempotency_key}:undo"
            self._log(f"undo {name}", effect.undo_key)
            return {"undone": name}

        return Step(call, **{"name": name, "once": True, "undo": undo, **policy})

    def lookup(self, *, workflow: Workflow, context: Any, effect: KnownEffect) -> Mapping[str, Any] | None:
        self.log.append(f"look for {effect.step}")
        return self.found.get(effect.step)

    def _log(self, what: str, key: str) -> None:
        self.log.append(what)
        if self.errors.get(what):
            raise self.errors[what].pop(0)


@pytest.fixture
def world() -> World:
    return World()


def fail(*, workflow: Workflow, context: Any) -> None:
    raise StepError("No.", code="refused")


def flaky(*, workflow: Workflow, context: Any) -> None:
    raise RetryableStepError(code="busy", max_attempts=2, base_delay=0)


def again(workflow: Workflow) -> Workflow:
    make_due(workflow)
    return work(workflow)


def to_rest(workflow: Workflow, most: int = 20) -> Workflow:
    workflow.refresh_from_db()
    while workflow.status == "PENDING":
        assert (most := most - 1), f"still {workflow.waiting_for or workflow.current_step}"
        workflow = again(workflow)
    return workflow


def states() -> dict[str, str]:
    """Of each effect, its undo as `undo name`."""
    effects = Effect.objects.order_by("id")
    return {f"undo {e.step}" if e.undo else e.step: e.state for e in effects}


def ada() -> User:
    return User.objects.get_or_create(username="ada", is_superuser=True)[0]


# --- What is undone, and in which order ---------------------------------------------------------------


def test_it_undoes_in_reverse_order_and_fails_then(world: World) -> None:
    define([world.step("reserve"), world.step("charge"), fail])
    workflow = work(submit())
    assert (workflow.status, workflow.compensating, workflow.completed_at) == ("PENDING", True, None)
    assert Workflow.objects.with_state().get(pk=workflow.pk).state == State.COMPENSATING
    workflow = work(workflow)
    assert (workflow.status, workflow.compensating) == ("FAILED", False)
    assert world.log == ["reserve", "charge", "undo charge", "undo reserve"]
    assert states() == {"reserve": "undone", "charge": "undone", "undo charge": "done", "undo reserve": "done"}
    assert outcomes(workflow) == {"charge": "undone", "reserve": "undone"}
    assert kinds(workflow) == ["failed", "compensating", "compensated"]


def test_what_it_failed_with_stays_on_the_row(world: World) -> None:
    define([world.step("charge"), fail], retry=Retry(base_delay=0, jitter_factor=0))
    world.errors["undo charge"] = [UnknownOutcome("no answer")]
    workflow = to_rest(submit())
    assert (workflow.current_step, workflow.last_error_code, workflow.last_error_message) == ("fail", "refused", "No.")
    assert workflow.completed_at is not None


def test_a_workflow_that_has_nothing_to_undo_fails_at_once(world: World) -> None:
    define([world.step("look", undo=None), fail])
    workflow = work(submit())
    assert (workflow.status, workflow.compensating) == ("FAILED", False)
    assert kinds(workflow) == ["failed"]


def test_what_did_not_happen_is_not_undone(world: World) -> None:
    define([world.step("reserve"), world.step("charge")])
    world.errors["charge"] = [StepError("No.", code="declined")]
    workflow = to_rest(submit())
    assert world.log == ["reserve", "charge", "undo reserve"]
    assert workflow.last_error_code == "declined"


def test_it_is_due_before_the_backlog(world: World) -> None:
    define([world.step("charge"), fail])
    workflow = submit()
    submit()
    workflow = work(workflow)
    assert workflow.invisible_until == workflow.created_at


def test_the_context_of_an_undo_is_what_the_ledger_knows(world: World) -> None:
    def leave_a_note(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"text": "not a call, and so not on the ledger"}

    define([world.step("reserve"), leave_a_note, world.step("charge"), fail])
    to_rest(submit())
    assert world.contexts["charge"].tags == ["reserve", "charge"]
    assert world.contexts["charge"].text is None
    assert world.contexts["reserve"].tags == ["reserve", "charge"]  # what it returned happened, undone or not


def test_exhausted_retries_are_compensated_too(world: World) -> None:
    define([world.step("charge"), flaky])
    workflow = to_rest(submit())
    assert world.log == ["charge", "undo charge"]
    assert (workflow.retry_count, workflow.last_error_code) == (2, "busy")


def test_poison_is_compensated_too(world: World) -> None:
    define([world.step("charge"), fail])
    workflow = submit()
    world.errors["charge"] = [UnknownOutcome()]
    work(workflow)
    Effect.objects.update(state="done", result={})
    for number in range(2, 5):
        Attempt.objects.create(workflow=workflow, number=number, outcome="crashed", closed_at=workflow.created_at)
    assert to_rest(workflow).last_error_code == "poison"
    assert world.log == ["charge", "undo charge"]


# --- Resumed, repeated, retried -----------------------------------------------------------------------


def test_an_undo_that_fails_is_retried_and_holds_the_earlier_ones(world: World) -> None:
    define([world.step("reserve"), world.step("charge"), fail], retry=Retry(base_delay=60, jitter_factor=0))
    world.errors["undo charge"] = [RetryableStepError("Busy.", code="busy")]
    workflow = work(work(submit()))
    assert world.log == ["reserve", "charge", "undo charge"]
    assert states() == {"reserve": "done", "charge": "done", "undo charge": "not_done"}
    assert kinds(workflow)[-1] == "undo_failed"
    assert timedelta(seconds=50) < workflow.invisible_until - last_attempt(workflow).opened_at < timedelta(seconds=70)
    assert to_rest(workflow).status == "FAILED"
    assert world.log[3:] == ["undo charge", "undo reserve"]


def test_what_is_undone_is_not_undone_again(world: World) -> None:
    define([world.step("reserve"), world.step("charge"), fail], retry=Retry(base_delay=0))
    world.errors["undo reserve"] = [UnknownOutcome(), UnknownOutcome()]
    to_rest(submit())
    assert world.log == ["reserve", "charge", "undo charge", "undo reserve", "undo reserve", "undo reserve"]
    # In the history all of it, also what an earlier attempt has undone.
    assert Event.objects.get(kind="compensated").detail == {"undone": ["charge", "reserve"]}


def terminate(alias: str) -> None:
    pid = connections[alias].connection.info.backend_pid
    with engine.another_connection() as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


@pytest.mark.parametrize("alias", ["default", "journal"])
def test_an_undo_whose_claim_was_lost_is_recorded_and_not_repeated(world: World, alias: str) -> None:
    lost = []

    def undo(*, workflow: Workflow, context: Any, effect: KnownEffect) -> None:
        lost.append(1)
        terminate(alias)

    define([world.step("reserve"), world.step("charge", undo=undo), fail])
    workflow = work(submit())
    this = worker()
    with pytest.raises((ClaimLost, OperationalError, InterfaceError, InternalError)):
        this.process_next()
    this._close_lost_attempt()
    assert states()["charge"] == "undone"
    assert to_rest(workflow).status == "FAILED"
    assert lost == [1]
    assert world.log[-1] == "undo reserve"


def test_a_worker_that_lost_its_row_begins_no_further_undo(world: World) -> None:
    def undo(*, workflow: Workflow, context: Any, effect: KnownEffect) -> None:
        terminate("default")

    define([world.step("reserve"), world.step("charge", undo=undo), fail])
    work(submit())
    with pytest.raises((ClaimLost, OperationalError, InterfaceError, InternalError)):
        worker().process_next()
    assert "undo reserve" not in world.log


def test_a_crash_in_an_undo_repeats_it_under_its_key(world: World) -> None:
    define([world.step("charge"), fail])
    workflow = work(submit())
    world.errors["undo charge"] = [ClaimLost("as good as a crash: nothing is written")]
    with pytest.raises(ClaimLost):
        worker().process_next()
    assert states() == {"charge": "done", "undo charge": "intent"}
    assert to_rest(workflow).status == "FAILED"
    assert Effect.objects.filter(undo=True).count() == 1


def test_a_worker_told_to_stop_gives_it_back_before_the_next_undo(world: World) -> None:
    define([world.step("reserve"), world.step("charge"), fail])
    workflow = work(submit())
    asked: list[bool] = []
    workflow = work(workflow, must_stop=lambda: bool(asked.append(True)) or len(asked) > 1)
    assert (workflow.status, states()["charge"], states()["reserve"]) == ("PENDING", "undone", "done")
    assert to_rest(workflow).status == "FAILED"


# --- Did it happen? -----------------------------------------------------------------------------------


def in_doubt(world: World, **policy: Any) -> Workflow:
    """A workflow that failed in a call of which nobody knows whether it happened."""
    world.errors["charge"] = [ValueError("not JSON")]
    define([world.step("reserve"), world.step("charge", **{"settle": 0, **policy})])
    workflow = work(submit())
    assert states() == {"reserve": "done", "charge": "unknown"}
    return workflow


def test_a_lookup_finds_that_it_happened_and_it_is_undone(world: World) -> None:
    workflow = in_doubt(world, lookup=world.lookup)
    world.found["charge"] = {"number": 7}
    assert to_rest(workflow).status == "FAILED"
    assert world.log == ["reserve", "charge", "look for charge", "undo charge", "undo reserve"]
    assert world.contexts["charge"].number == 7


def test_not_found_counts_only_when_the_call_can_no_longer_be_on_its_way(world: World) -> None:
    workflow = work(in_doubt(world, lookup=world.lookup, settle=3600))
    assert (workflow.status, kinds(workflow)[-1]) == ("PENDING", "put_back")
    for _ in range(5):  # and however often that is, it is no failure of the undo
        workflow = again(workflow)
    assert Effect.objects.get(step="charge").undo_failures == 0
    assert "undo charge" not in world.log
    assert world.log.count("look for charge") == 6


def test_a_result_that_comes_while_it_is_looked_up_is_the_truth(world: World) -> None:
    """Of a worker that was cut off in its call: written by its attempt, which the effect still names."""

    def too_early(*, workflow: Workflow, context: Any, effect: KnownEffect) -> None:
        with engine.another_connection() as other:
            other.execute("UPDATE workflows_effect SET state = 'done', result = '{}' WHERE id = %s", [effect.id])

    workflow = in_doubt(world, lookup=too_early, settle=0)
    this = worker()
    with pytest.raises(ClaimLost):
        this.process_next()
    this._close_lost_attempt()
    assert to_rest(workflow).status == "FAILED"
    assert world.log == ["reserve", "charge", "undo charge", "undo reserve"]


def test_not_found_in_the_end_is_not_undone(world: World) -> None:
    workflow = to_rest(in_doubt(world, lookup=world.lookup, settle=0))
    assert world.log == ["reserve", "charge", "look for charge", "undo reserve"]
    assert outcomes(workflow) == {"charge": "not_done", "reserve": "undone"}


def test_a_lookup_that_keeps_failing_is_a_question(world: World) -> None:
    def broken(*, workflow: Workflow, context: Any, effect: KnownEffect) -> None:
        world.log.append("look for charge")
        raise StepError("No.", code="gone")

    workflow = in_doubt(world, lookup=broken)
    for _ in range(5):
        workflow = again(workflow)
    assert world.log.count("look for charge") == 3
    assert workflow.waiting_for == "The lookup of charge failed 3 times. Is it dealt with?"
    operations.approve(ManualTask.objects.get().pk, user=ada(), reason="By phone.", answer=BY_HAND)
    assert to_rest(workflow).status == "FAILED"
    assert (states()["charge"], world.log[-1]) == ("undone", "undo reserve")


def test_a_lookup_that_keeps_crashing_is_a_question(world: World) -> None:
    workflow = in_doubt(world, lookup=world.lookup)
    for number in range(2, 5):
        Attempt.objects.create(workflow=workflow, number=number, outcome="crashed", closed_at=workflow.created_at)
    assert work(workflow).waiting_for
    assert "look for charge" not in world.log


def test_nothing_is_repeated_in_order_to_be_undone(world: World) -> None:
    """Although its key is honoured: nobody is charged in order to be refunded."""
    workflow = work(in_doubt(world, key_ttl=timedelta(hours=1)))
    assert world.log == ["reserve", "charge"]
    assert ManualTask.objects.get().task_type == "effect_in_doubt"
    assert workflow.compensating


@pytest.mark.parametrize(("happened", "undone"), [(True, ["undo charge", "undo reserve"]), (False, ["undo reserve"])])
def test_a_person_says_whether_there_is_something_to_undo(world: World, happened: bool, undone: list[str]) -> None:
    workflow = work(in_doubt(world))
    task_id = ManualTask.objects.get().pk
    if happened:
        operations.approve(task_id, user=ada(), reason="Seen.", answer={})
    else:
        operations.reject(task_id, user=ada(), reason="Not there.")
    assert to_rest(workflow).status == "FAILED"
    assert world.log == ["reserve", "charge", *undone]


def test_nobody_is_asked_while_the_call_may_still_be_on_its_way(world: World) -> None:
    """Their "it did not happen" could be true, and the charge come after it, with nobody to undo it."""
    workflow = work(in_doubt(world, settle=3600))
    assert (kinds(workflow)[-1], workflow.waiting_for) == ("put_back", "")
    assert not ManualTask.objects.exists()


def test_a_question_that_a_lookup_has_answered_is_withdrawn(world: World) -> None:
    workflow = work(in_doubt(world))
    world.found["charge"] = {"number": 7}
    define([world.step("reserve"), world.step("charge", lookup=world.lookup)])  # the next release
    assert to_rest(workflow).status == "FAILED"
    assert ManualTask.objects.get().state == "closed"


def test_a_question_that_expires_is_asked_again(world: World) -> None:
    workflow = work(in_doubt(world))
    engine.expire(workflow)
    workflow = work(workflow)
    assert workflow.compensating
    assert list(ManualTask.objects.order_by("id").values_list("state", flat=True)) == ["expired", "open"]


# --- Asking a person ----------------------------------------------------------------------------------


def exhausted(world: World) -> tuple[Workflow, ManualTask]:
    world.errors["undo charge"] = [StepError("No.", code="no_refunds")] * 3
    define([world.step("reserve"), world.step("charge"), fail], retry=Retry(base_delay=0))
    workflow = work(submit())
    for _ in range(4):
        workflow = again(workflow)
    assert world.log.count("undo charge") == 3
    assert workflow.waiting_for == "The undo of charge failed 3 times. Is it dealt with?"
    task = ManualTask.objects.get()
    assert task.task_type == compensation.UNDO_TASK_TYPE
    assert dict(task.facts)["The last error"] == "no_refunds: No."
    return workflow, task


def test_after_three_failures_a_person_is_asked_and_the_earlier_ones_wait(world: World) -> None:
    workflow, _ = exhausted(world)
    assert Workflow.objects.with_state().get(pk=workflow.pk).state == State.COMPENSATING
    assert again(workflow).waiting_for
    assert "undo reserve" not in world.log


def test_a_person_has_undone_it_by_hand(world: World) -> None:
    workflow, task = exhausted(world)
    operations.approve(task.pk, user=ada(), reason="By phone.", answer=BY_HAND)
    assert to_rest(workflow).status == "FAILED"
    assert world.log[-1] == "undo reserve"
    charge = Effect.objects.get(step="charge", undo=False)
    assert (charge.state, charge.settled_by) == ("undone", "ada")
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


@pytest.mark.parametrize(
    ("answer", "reason", "why"),
    [
        (BY_HAND, " ", "Say why"),
        (None, "Done.", "A yes is not enough"),
        ({}, "Done.", "kept"),
        ({"kept": None, "reference": "re-9"}, "Done.", "kept"),
        ({"kept": False}, "Done.", "reference_missing"),
        ({"kept": False, "reference": " "}, "Done.", "reference_missing"),
        ({"kept": False, "reference": None}, "Done.", "reference"),
        ({"kept": True, "reference": "re-9"}, "Done.", "reference_of_nothing"),
        ({**BY_HAND, "by": "me"}, "Done.", "by"),
    ],
)
def test_what_is_dealt_with_by_hand_says_how_and_why(
    world: World, answer: dict[str, Any] | None, reason: str, why: str
) -> None:
    _, task = exhausted(world)
    with pytest.raises(NotAllowed, match=why):
        operations.approve(task.pk, user=ada(), reason=reason, answer=answer)
    task.refresh_from_db()
    assert (task.state, Signal.objects.count(), states()["charge"]) == ("open", 0, "done")


def test_a_person_lets_it_be(world: World) -> None:
    workflow, task = exhausted(world)
    operations.approve(task.pk, user=ada(), reason="Too late.", answer={"kept": True})
    workflow = to_rest(workflow)
    assert (states()["charge"], states()["reserve"]) == ("kept", "undone")
    operations.retry(workflow.pk, user=ada())
    world.log.clear()
    to_rest(workflow)
    assert world.log[0] == "reserve"
    assert "charge" not in world.log  # it stayed done


def test_what_a_person_let_be_is_asked_again_when_a_retry_fails_too(world: World) -> None:
    workflow, task = exhausted(world)
    operations.approve(task.pk, user=ada(), reason="Too late.", answer={"kept": True})
    workflow = to_rest(workflow)
    operations.retry(workflow.pk, user=ada())
    world.errors["undo charge"] = [StepError("No.")] * 3
    for _ in range(5):
        workflow = again(workflow)
    assert (workflow.compensating, workflow.waiting_for) == (True, task.question)
    assert ManualTask.objects.latest("id").pk != task.pk


def test_what_is_kept_while_in_doubt_is_asked_again_by_a_retry(world: World) -> None:
    """Kept as it is, and nobody has said that it happened: without a result it cannot be done."""
    workflow = in_doubt(world)
    define([world.step("reserve"), fail])
    work(workflow)
    operations.approve(ManualTask.objects.get().pk, user=ada(), reason="Too late.", answer={"kept": True})
    workflow = to_rest(workflow)
    assert states()["charge"] == "kept"
    operations.retry(workflow.pk, user=ada())
    assert states()["charge"] == "unknown"


def test_what_is_done_has_a_result() -> None:
    with pytest.raises(IntegrityError, match="effect_done_has_a_result"):
        Effect.objects.create(workflow=submit(), step="charge", state="done", attempt=1)


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
    assert workflow.waiting_for == "The undo of charge is not in this release. Is it dealt with?"
    task = ManualTask.objects.get()
    define([world.step("reserve"), world.step("charge"), fail])  # the next release has it
    assert to_rest(workflow).status == "FAILED"
    assert world.log == ["reserve", "charge", "undo charge", "undo reserve"]
    task.refresh_from_db()
    assert task.state == "closed"


def test_a_call_in_doubt_that_another_release_repeats_keeps_its_undo(world: World) -> None:
    world.errors["charge"] = [UnknownOutcome("No answer.")]
    define([world.step("charge", key_ttl=timedelta(hours=1)), fail])
    workflow = work(submit())
    define([world.step("charge", key_ttl=timedelta(hours=1), undo=None), fail])
    workflow = again(workflow)
    assert (world.log, workflow.compensating) == (["charge", "charge"], True)


def test_a_renamed_step_is_undone_under_its_key(world: World) -> None:
    define([world.step("charge"), fail])
    workflow = work(submit())
    define([world.step("charge_card", formerly=("charge",)), fail])
    assert to_rest(workflow).status == "FAILED"
    assert world.log == ["charge", "undo charge_card"]


@pytest.mark.parametrize("outcome", ["crashed", "overdue"])
def test_three_crashes_in_a_row_are_a_question(world: World, outcome: str) -> None:
    define([world.step("reserve"), world.step("charge"), fail])
    workflow = work(submit())
    ended = {"outcome": "interrupted", "died_how": "overdue"} if outcome == "overdue" else {"outcome": "crashed"}
    for number in range(2, 5):
        Attempt.objects.create(
            workflow=workflow, number=number, closed_at=workflow.created_at, died_in="undo charge", **ended
        )
    workflow = work(workflow)
    assert "undo charge" not in world.log
    task = ManualTask.objects.get()
    assert "died 3 times in a row, last in undo charge" in dict(task.facts)["The last error"]
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


# --- An undo that does what it should not -------------------------------------------------------------


def test_an_undo_may_not_wait(world: World) -> None:
    from workflows.waits import require_approval

    def undo(*, workflow: Workflow, context: Any, effect: KnownEffect) -> None:
        require_approval(workflow, "review", question="May it?", timeout=timedelta(hours=1))

    define([world.step("charge", undo=undo), fail])
    workflow = work(work(submit()))
    assert Effect.objects.get(undo=False).undo_failures == 1
    assert "may not wait" in Effect.objects.get(undo=False).error_message
    assert workflow.compensating


def test_an_undo_that_never_returns_is_timed_out_and_counted(world: World) -> None:
    def undo(*, workflow: Workflow, context: Any, effect: KnownEffect) -> None:
        while True:
            pass

    define([world.step("charge", undo=undo, timeout=0.2), fail])
    workflow = work(work(submit()))
    assert (states()["undo charge"], workflow.compensating) == ("unknown", True)
    assert Effect.objects.get(undo=False).undo_failures == 1


def test_an_undo_with_nothing_to_tell_has_happened_all_the_same(world: World) -> None:
    define([world.step("charge", undo=lambda *, workflow, context, effect: None), fail])
    assert to_rest(submit()).status == "FAILED"
    assert states() == {"charge": "undone", "undo charge": "done"}


# --- Retrying a compensated workflow ------------------------------------------------------------------


def test_a_retry_does_it_again_under_new_keys_and_undoes_that_too(world: World) -> None:
    define([world.step("charge"), world.step("note", undo=None), fail])
    workflow = to_rest(submit())
    operations.retry(workflow.pk, user=ada())
    workflow = to_rest(workflow)
    assert workflow.status == "FAILED"
    assert world.log == ["charge", "note", "undo charge", "charge", "undo charge"]
    keys = set(Effect.objects.values_list("idempotency_key", flat=True))
    key = f"{workflow.key}:charge"
    assert keys == {key, f"{key}:undo", f"{key}:2", f"{key}:2:undo", f"{workflow.key}:note"}


def test_what_was_in_doubt_before_a_retry_is_undone_in_its_turn_too(world: World) -> None:
    workflow = work(in_doubt(world))
    operations.reject(ManualTask.objects.get().pk, user=ada(), reason="Not there.")
    workflow = to_rest(workflow)
    define([world.step("reserve"), world.step("charge"), fail])
    operations.retry(workflow.pk, user=ada())
    world.log.clear()
    to_rest(workflow)
    assert world.log == ["reserve", "charge", "undo charge", "undo reserve"]


# --- Its pool -----------------------------------------------------------------------------------------


def test_a_pool_of_its_own_takes_nothing_else(world: World) -> None:
    define([world.step("charge"), fail])
    failed = work(submit())
    submit()
    this = worker(only="compensation")
    assert this.process_next()
    assert Workflow.objects.get(pk=failed.pk).status == "FAILED"
    assert not this.process_next()

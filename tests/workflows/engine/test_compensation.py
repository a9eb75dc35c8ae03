"""UNDO: what a workflow has done is undone when it fails for good: newest first, each once, and again after a retry."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from tests import engine
from tests.engine import again, define, kinds, last_attempt, outcomes, submit, terminate, work, worker
from tests.workflows.refusing import lose
from tests.workflows.undoing import World, ada, fail, flaky, states, to_rest
from workflows import operations
from workflows.definition import Retry
from workflows.effects import KnownEffect
from workflows.errors import ClaimLost, RetryableStepError, StepError, UnknownOutcome
from workflows.models import Attempt, Effect, Event, State, Workflow

pytestmark = engine.ENGINE


# --- What is undone, and in which order ---------------------------------------------------------------


def test_it_undoes_in_reverse_order_and_fails_then(world: World) -> None:
    define([world.step("reserve"), world.step("charge"), world.step("mail", undo=None), fail])
    workflow = work(submit())
    answered = dict(Effect.objects.values_list("step", "settled_at"))
    assert (workflow.status, workflow.compensating, workflow.completed_at) == ("PENDING", True, None)
    assert Workflow.objects.with_state().get(pk=workflow.pk).state == State.COMPENSATING
    workflow = work(workflow)
    assert (workflow.status, workflow.compensating) == ("FAILED", False)
    assert world.log == ["reserve", "charge", "mail", "undo charge", "undo reserve"]
    done = {"mail": "done", "undo charge": "done", "undo reserve": "done"}
    assert states() == {"reserve": "undone", "charge": "undone", **done}
    assert dict(Effect.objects.filter(undo=False).values_list("step", "settled_at")) == answered
    assert outcomes(workflow) == {"charge": "undone", "reserve": "undone"}
    assert kinds(workflow) == ["failed", "compensating", "compensated"]
    assert Event.objects.get(kind="compensated").detail == {"undone": ["charge", "reserve"]}


def test_what_did_not_happen_is_not_undone(world: World) -> None:
    define([world.step("reserve"), world.step("charge")])
    world.errors["charge"] = [StepError("No.", code="declined")]
    workflow = to_rest(submit())
    assert world.log == ["reserve", "charge", "undo reserve"]
    assert workflow.last_error_code == "declined"


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


# --- Resumed, repeated --------------------------------------------------------------------------------


def test_an_undo_that_fails_is_retried_and_holds_the_earlier_ones(world: World) -> None:
    define([world.step("reserve"), world.step("charge"), fail], retry=Retry(base_delay=60, jitter_factor=0))
    world.errors["undo charge"] = [RetryableStepError("Busy.", code="busy")]
    workflow = work(work(submit()))
    assert world.log == ["reserve", "charge", "undo charge"]
    assert states() == {"reserve": "done", "charge": "done", "undo charge": "not_done"}
    assert kinds(workflow)[-1] == "undo_failed"
    assert "unclear" not in Event.objects.last().detail  # type: ignore[union-attr]
    assert timedelta(seconds=50) < workflow.invisible_until - last_attempt(workflow).opened_at < timedelta(seconds=70)
    assert to_rest(workflow).status == "FAILED"
    assert world.log[3:] == ["undo charge", "undo reserve"]


def test_what_is_undone_is_not_undone_again(world: World) -> None:
    define([world.step("reserve"), world.step("charge"), fail], retry=Retry(base_delay=0))
    world.errors["undo reserve"] = [UnknownOutcome(), UnknownOutcome()]
    workflow = to_rest(submit())
    assert world.log == ["reserve", "charge", "undo charge", "undo reserve", "undo reserve", "undo reserve"]
    # What it failed with stays on the row.
    assert (workflow.current_step, workflow.last_error_code, workflow.last_error_message) == ("fail", "refused", "No.")
    assert workflow.completed_at is not None
    # In the history all of it, also what an earlier attempt has undone.
    assert Event.objects.get(kind="compensated").detail == {"undone": ["charge", "reserve"]}


@pytest.mark.parametrize("alias", ["default", "attempt_log"])
def test_an_undo_whose_claim_was_lost_is_recorded_and_not_repeated(world: World, alias: str) -> None:
    lost = []

    def undo(*, workflow: Workflow, context: Any, effect: KnownEffect) -> None:
        lost.append(1)
        terminate(alias)

    define([world.step("reserve"), world.step("charge", undo=undo), fail])
    workflow = work(submit())
    lose(workflow)
    assert states()["charge"] == "undone"
    assert "undo reserve" not in world.log, "a worker that has lost its row starts no further undo"
    assert to_rest(workflow).status == "FAILED"
    assert lost == [1]
    assert world.log[-1] == "undo reserve"


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


def test_a_renamed_step_is_undone_under_its_key(world: World) -> None:
    define([world.step("charge"), fail])
    workflow = work(submit())
    define([world.step("charge_card", formerly=("charge",)), fail])
    assert to_rest(workflow).status == "FAILED"
    assert world.log == ["charge", "undo charge_card"]


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


# --- The order, also if a clock was set back --------------------------------------------------------


def begun_earlier(step: str) -> None:
    """By the clock, which was set back before this call."""
    with connection.cursor() as cursor:
        back = "begun_at = begun_at - interval '10 minutes', first_begun_at = first_begun_at - interval '10 minutes'"
        cursor.execute(f"UPDATE workflows_effect SET {back} WHERE step = %s", [step])


def undone(world: World) -> list[str]:
    return [line for line in world.log if line.startswith("undo")]


def test_a_call_that_was_started_again_counts_from_then(world: World) -> None:
    """Its row is the older one: the step came first, was refused, and comes last by now."""
    world.errors["charge"] = [RetryableStepError("not sent", base_delay=0)]
    charge, reserve = world.step("charge"), world.step("reserve")
    define([charge, fail])
    workflow = work(submit())
    define([reserve, charge, fail])
    workflow = again(workflow)
    begun_earlier("charge")
    to_rest(workflow)
    assert undone(world) == ["undo charge", "undo reserve"]


def test_a_clock_that_was_set_back_changes_no_order_nor_does_a_lookup(world: World) -> None:
    define([world.step("reserve"), world.step("charge", lookup=world.lookup, settle=0), world.step("ship"), fail])
    world.found["charge"] = {"tags": ["charge"]}
    workflow = work(submit())
    Effect.objects.filter(step="charge").update(state="unknown")
    begun_earlier("charge")
    to_rest(workflow)
    assert undone(world) == ["undo ship", "undo charge", "undo reserve"]

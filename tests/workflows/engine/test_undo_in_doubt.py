"""Did it happen? A call that nobody knows of is looked up, or asked about, before it is undone; never repeated."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests import engine
from tests.engine import again, define, kinds, outcomes, submit, work
from tests.workflows.refusing import lose
from tests.workflows.undoing import BY_HAND, NEVER, World, ada, fail, in_doubt, states, to_rest
from workflows import operations
from workflows.effects import KnownEffect
from workflows.errors import StepError, UnknownOutcome
from workflows.models import Attempt, Effect, Event, ManualTask, Workflow

pytestmark = engine.ENGINE


def test_a_lookup_finds_that_it_happened_and_it_is_undone(world: World) -> None:
    workflow = in_doubt(world, lookup=world.lookup)
    world.found["charge"] = {"number": 7}
    assert to_rest(workflow).status == "FAILED"
    assert world.log == ["reserve", "charge", "look for charge", "undo charge", "undo reserve"]
    assert world.contexts["charge"].number == 7


def test_not_found_counts_only_when_the_call_can_no_longer_be_on_its_way(world: World) -> None:
    workflow = work(in_doubt(world, lookup=world.lookup, settle=3600))
    assert (workflow.status, kinds(workflow)[-1]) == ("PENDING", "put_back")
    for _ in range(5):  # and however often that is, it is not a failure of the undo
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
    lose(workflow)
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
    assert world.log.count("look for charge") == 5, "until a person is asked, and twice since"
    assert Effect.objects.get(step="charge").undo_failures == 3
    assert workflow.waiting_for == "The lookup of “Charge” failed 3 times. Has someone reversed it?"
    assert [event.detail["unclear"] for event in Event.objects.filter(kind="undo_failed")] == [True] * 3
    operations.approve(ManualTask.objects.get().pk, user=ada(), reason="By phone.", answer=BY_HAND)
    assert to_rest(workflow).status == "FAILED"
    assert (states()["charge"], world.log[-1]) == ("undone", "undo reserve")


def asked_about_a_doubt(world: World) -> tuple[Workflow, ManualTask]:
    """A workflow whose call is in doubt, and whose lookup has failed three times."""

    def refuse(*, workflow: Workflow, context: Any, effect: KnownEffect) -> None:
        raise StepError("No.", code="gone")

    workflow = in_doubt(world, lookup=refuse)
    for _ in range(4):
        workflow = again(workflow)
    world.log.clear()
    return workflow, ManualTask.objects.get()


def test_a_person_says_that_a_call_in_doubt_never_happened(world: World) -> None:
    """A retry makes it under the key that it had: should it have happened, the service answers as it did."""
    workflow, task = asked_about_a_doubt(world)
    key = Effect.objects.get(step="charge").idempotency_key
    operations.approve(task.pk, user=ada(), reason="Not in their list.", answer=NEVER)
    workflow = to_rest(workflow)
    charge = Effect.objects.get(step="charge")
    assert (workflow.status, charge.state, charge.settled_by, world.log) == (
        "FAILED",
        "not_done",
        "ada",
        ["undo reserve"],
    )
    said = Event.objects.get(workflow=workflow, detail__said="never_happened")
    assert (said.actor, said.detail["reason"]) == ("ada", "Not in their list.")
    define([world.step("reserve"), world.step("charge"), fail])
    operations.retry(workflow.pk, user=ada())
    to_rest(workflow)
    assert world.log[1:] == ["reserve", "charge", "undo charge", "undo reserve"], "its undo had not failed"
    assert Effect.objects.get(step="charge", undo=False).idempotency_key == key


def test_what_becomes_known_counts_against_the_word_that_it_never_happened(world: World) -> None:
    workflow, task = asked_about_a_doubt(world)
    operations.approve(task.pk, user=ada(), reason="Not in their list.", answer=NEVER)
    Effect.objects.filter(step="charge").update(state="done", result={"number": 7})  # the late answer to its call
    assert to_rest(workflow).status == "FAILED"
    assert world.log == ["undo charge", "undo reserve"]


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


def test_a_question_that_expires_is_asked_again(world: World) -> None:
    workflow = work(in_doubt(world))
    engine.expire(workflow)
    workflow = work(workflow)
    assert workflow.compensating
    assert list(ManualTask.objects.order_by("id").values_list("state", flat=True)) == ["expired", "open"]


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


def test_a_call_in_doubt_that_another_release_repeats_keeps_its_undo(world: World) -> None:
    world.errors["charge"] = [UnknownOutcome("No answer.")]
    define([world.step("charge", key_ttl=timedelta(hours=1)), fail])
    workflow = work(submit())
    define([world.step("charge", key_ttl=timedelta(hours=1), undo=None), fail])
    workflow = again(workflow)
    assert (world.log, workflow.compensating) == (["charge", "charge"], True)


def test_what_was_in_doubt_before_a_retry_is_undone_in_its_turn_too(world: World) -> None:
    workflow = work(in_doubt(world))
    operations.reject(ManualTask.objects.get().pk, user=ada(), reason="Not there.")
    workflow = to_rest(workflow)
    define([world.step("reserve"), world.step("charge"), fail])
    operations.retry(workflow.pk, user=ada())
    world.log.clear()
    to_rest(workflow)
    assert world.log == ["reserve", "charge", "undo charge", "undo reserve"]
